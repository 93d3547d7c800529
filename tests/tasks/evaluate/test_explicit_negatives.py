"""What is said of considered pairs, against the same pair by pair, and the rows that it becomes."""

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.calibration import calibration_error, evaluate_probabilities, smoothed_like_rates
from oneclass.models.generator.density_ratio import GroundTruth
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.datasets import load_dataset
from oneclass.tasks.demo import DemoSettings, make_demo
from oneclass.tasks.evaluate import calibration
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home, Limits
from oneclass.tasks.stores.matrices import Part, SplitMatrices
from tests.conftest import load_ids
from tests.tasks.conftest import split_likes

USERS, ITEMS = 40, 30


@pytest.fixture(params=["leave_one_out", "strong_generalization"])
def split(request):
    """Users who like some items, considered others, and have some of both held out; one in eight has no held-out
    like.
    """
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
    return SplitMatrices(request.param, likes, users, items, {"test": part}, explicit_negatives=negatives)


@pytest.fixture
def model(split):
    return RandomGraph(RandomGraphSettings(factors=3, iterations=5), seed=1, threads=1).fit(split.train)


def one_by_one(model, split):
    """(user, item, like, liked) of every held-out pair."""
    part = split.parts["test"]
    for user in range(USERS):
        row = None if part.rows is None else np.array([user])
        like = model.like(part.histories[user], users=row)[0][0]
        for matrix, liked in ((part.targets, True), (part.explicit_negatives, False)):
            for item in matrix[user].indices:
                yield user, item, like[item], liked


def test_every_held_out_pair_is_judged_once(split, model, monkeypatch):
    monkeypatch.setattr(calibration, "USERS_PER_PAIR_BLOCK", 7)
    random = np.random.default_rng(5)
    truth = None
    if split.protocol == "leave_one_out":
        traits = [random.normal(size=shape).astype(np.float32) for shape in ((USERS, 2), (ITEMS, 2), ITEMS)]
        truth = GroundTruth(*traits, np.ones(USERS), np.ones(ITEMS))
    users, items, like, liked = map(np.array, zip(*one_by_one(model, split), strict=True))
    found = calibration.evaluate_explicit_feedback(
        "any", calibration.score_explicit_pairs(model, split.parts["test"], truth)
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
    shares = smoothed_like_rates(split.train, split.explicit_negatives)
    popular = calibration.evaluate_popularity_baseline([split]).figures["considered_log_loss"].value
    assert popular == pytest.approx(evaluate_probabilities(shares[items], liked)["considered_log_loss"].value)


DEMO = DemoSettings(users=300, items=200, likes=9_000)


def prepare_split(home, threshold):
    """The split leave_one_out of a demo's log."""
    logs = make_demo(home, DEMO, 3)
    dataset = load_dataset("demo", home.root)
    ingest(home, dataset, logs, "run")
    digests = split_likes(home, "leave_one_out", likes=BinarizeSettings(threshold=threshold))
    return matrices.load_split(home, digests["leave_one_out"])


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home(tmp_path_factory.mktemp("truth"), "demo", Limits(threads=1, memory=1 << 30))


@pytest.fixture(scope="module")
def whole(home):
    return prepare_split(home, 4)


@pytest.fixture(scope="module")
def truth(home, whole):
    return calibration.load_truth(home, whole)


def test_the_truth_stands_in_the_order_of_the_split(home, whole, truth):
    """Coins of the likes, and degrees in the hidden graph, by the ids that the log gave."""
    users, items = ({at: int(own) for at, own in load_ids(home, side).items()} for side in ("user", "item"))
    edges = pl.read_parquet(home.truth / "edges.parquet")
    columns = {items[index]: column for column, index in enumerate(whole.items)}
    coins, row_of = truth.coins(np.arange(20)), {users[whole.users[row]]: row for row in range(20)}
    known = edges.filter(pl.col("user").is_in(row_of), pl.col("item").is_in(columns))
    found = [coins[row_of[user], columns[item]] for user, item in known.select("user", "item").iter_rows()]
    assert found == pytest.approx(known["probability"].to_list(), abs=1e-5) and len(found) > 100
    degrees = dict(edges.group_by("user").len().iter_rows())
    by_odds = [degrees[users[whole.users[row]]] for row in np.argsort(truth.user_odds)]
    assert by_odds == sorted(by_odds)


def test_the_sample_comes_true_at_the_true_ratio(whole, truth):
    """Whatever the model: likes among the pairs of a bin are as many as the true ratio says."""
    model = RandomGraph(RandomGraphSettings(factors=2, iterations=3)).fit(whole.train)
    part, law = whole.parts["test"], model.negative_distribution()
    of_part, everybody = truth.of_users(part.rows), np.ones(len(part.users), dtype=bool)
    found = calibration.evaluate_like(
        "any", calibration.sample_likes(model, law, whole.train, part, of_part, everybody)
    )
    bins = {kind: {one.low: one for name, one in found.calibration if name == kind}
            for kind in ("sampled_negatives", "density_ratio", "coin")}  # fmt: skip
    assert bins["sampled_negatives"].keys() == bins["density_ratio"].keys() == bins["coin"].keys()
    pairs = sum(one.pairs for one in bins["coin"].values())
    assert pairs == 2 * whole.parts["test"].targets.nnz
    for low, sampled in bins["sampled_negatives"].items():
        if sampled.standard_error:
            true = bins["density_ratio"][low].observed
            assert abs(sampled.observed - true) < 4 * sampled.standard_error + 0.03


def test_likes_that_are_not_the_demos_have_no_truth(home, tmp_path):
    other = Home(tmp_path, "demo", Limits(threads=1, memory=1 << 30))
    assert calibration.load_truth(other, None) is None
    assert calibration.load_truth(other, prepare_split(other, 3)) is None
