"""What is said of considered pairs, against the same pair by pair, and the rows that it becomes."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.calibration import evaluate_probabilities, smoothed_like_rates
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from oneclass.tasks.evaluate import calibration
from oneclass.tasks.stores.matrices import Part, SplitMatrices

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
    users, items, like, liked = map(np.array, zip(*one_by_one(model, split), strict=True))
    found = calibration.evaluate_explicit_feedback("any", calibration.score_explicit_pairs(model, split.parts["test"]))
    expected = evaluate_probabilities(like, liked)
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
