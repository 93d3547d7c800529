"""What is said of considered pairs, against the same pair by pair, and the rows that it becomes."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.explicit_negatives import calibration_error, evaluate_probabilities, smoothed_like_rates
from oneclass.models.generator.density_ratio import GroundTruth
from oneclass.models.popularity import Popularity
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from oneclass.tasks.evaluate import explicit_negatives, stage
from oneclass.tasks.stores import fits, matrices, warehouse
from oneclass.tasks.stores.home import Home, Limits
from oneclass.tasks.stores.matrices import Part, SplitMatrices

USERS, ITEMS = 40, 30


@pytest.fixture(params=["leave_one_out", "strong_generalization"])
def split(request):
    """Users who like some items, considered others, and have some of both held out; one in eight has no held-out like."""
    random = np.random.default_rng(2)
    marks = random.random((USERS, ITEMS))
    kinds = [marks < 0.3, (marks > 0.3) & (marks < 0.4), (marks > 0.4) & (marks < 0.6), (marks > 0.6) & (marks < 0.7)]
    kinds[1][::8] = kinds[3][1::8] = False
    if request.param == "leave_one_out":
        kinds[1] &= np.cumsum(kinds[1], axis=1) == 1
    likes, targets, negatives, held_out = (csr_matrix(one.astype(np.float32)) for one in kinds)
    users, items = np.arange(USERS, dtype=np.int32), np.arange(ITEMS, dtype=np.int32)
    rows = users if request.param == "leave_one_out" else None
    part = Part(likes, targets, users, rows, held_out)
    return SplitMatrices(request.param, likes, users, items, {"test": part}, negatives=negatives)


@pytest.fixture
def model(split):
    return RandomGraph(RandomGraphSettings(factors=3, iterations=5), seed=1, threads=1).fit(split.train)


def one_by_one(model, split):
    """(user, item, like, liked) of every held-out pair."""
    part = split.parts["test"]
    for user in range(USERS):
        row = None if part.rows is None else np.array([user])
        like = model.like(part.histories[user], users=row)[0][0]
        for matrix, liked in ((part.targets, True), (part.negatives, False)):
            for item in matrix[user].indices:
                yield user, item, like[item], liked


def test_every_held_out_pair_is_judged_once(split, model, monkeypatch):
    monkeypatch.setattr(explicit_negatives, "USERS_PER_BLOCK", 7)
    random = np.random.default_rng(5)
    truth = None
    if split.protocol == "leave_one_out":
        traits = [random.normal(size=shape).astype(np.float32) for shape in ((USERS, 2), (ITEMS, 2), ITEMS)]
        truth = GroundTruth(*traits, np.ones(USERS), np.ones(ITEMS))
    users, items, like, liked = map(np.array, zip(*one_by_one(model, split), strict=True))
    found = explicit_negatives.evaluate_explicit_feedback(
        "any", explicit_negatives.score_explicit_pairs(model, split.parts["test"], truth)
    )
    expected = evaluate_probabilities(like, liked)
    if truth is not None:
        coins = truth.coins(np.arange(USERS))[users, items]
        assert found.figures["considered_coin_error"].value == pytest.approx(calibration_error(like, coins), abs=1e-6)
    for metric, figure in expected.items():
        assert found.figures[metric].value == pytest.approx(figure.value, abs=1e-6), metric
    assert (found.likes, found.dislikes) == (liked.sum(), (~liked).sum())
    assert sum(one.pairs for one in found.calibration) == len(like)
    degrees = np.diff(split.parts["test"].histories.indptr)[users]
    for one in found.dislikes_by_degree:
        inside = like[~liked & (degrees >= one.low) & (degrees <= one.high)]
        assert one.edges == len(inside) == sum(one.histogram) and one.error == pytest.approx(np.mean(inside >= 0.5))
    assert sum(one.edges for one in found.dislikes_by_degree) == (~liked).sum()
    shares = smoothed_like_rates(split.train, split.negatives)
    popular = explicit_negatives.evaluate_popularity_baseline(split).figures["considered_log_loss"].value
    assert popular == pytest.approx(evaluate_probabilities(shares[items], liked)["considered_log_loss"].value)


def test_nothing_is_judged_where_nothing_was_kept_or_there_is_no_like(split, model):
    part = split.parts["test"]
    for negatives in (None, csr_matrix((USERS, ITEMS), dtype=np.float32)):
        without = replace(split, parts={"test": replace(part, negatives=negatives)})
        assert (
            not explicit_negatives._has_both_classes(without.parts["test"])
            and explicit_negatives.evaluate_popularity_baseline(without) is None
        )
    assert explicit_negatives.score_explicit_pairs(Popularity().fit(split.train), part, None) is None


def test_the_stage_writes_them_and_a_kept_evaluation_has_them(split, model, tmp_path):
    home = Home(tmp_path, "tiny", Limits(threads=1, memory=1 << 30))
    for one in (model, Popularity().fit(split.train)):
        fits.store_fit(home, one, "digest", key="k", matrices="m", seconds=1, peak_bytes=1)
    digest = matrices.store_split(home, split)
    for run in ("first", "again"):
        stage.evaluate(home, run, split.protocol, digest, {"popularity": "digest", "random_graph": "digest"})
    with warehouse.open_warehouse(home, read_only=True) as connection:
        found = connection.execute("select * from evaluation.considered order by all").fetchall()
        bins = connection.execute(
            "select run_id, sum(pairs) from evaluation.calibration where reference = 'considered' group by 1"
        ).fetchall()
    likes, dislikes = (getattr(split.parts["test"], kind).nnz for kind in ("targets", "negatives"))
    assert [row[1:] for row in found if row[0] == "first"] == [row[1:] for row in found if row[0] == "again"]
    assert {row[2] for row in found} == {"popularity", "random_graph"} and len(found) == 12
    assert {row[6:] for row in found} == {(likes, dislikes)}
    assert sorted(count for _, count in bins) == [2 * (likes + dislikes)] * 2 * (split.protocol == "leave_one_out")
