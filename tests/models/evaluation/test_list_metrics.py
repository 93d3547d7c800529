"""Metrics of lists against their definitions, item by item."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.list_metrics import (
    ListMetric,
    Lists,
    compute_calibration,
    compute_intra_list_similarity,
    compute_list_metrics,
    compute_serendipity,
    find_list_metric,
)

K = 5


def draw_lists(random, users: int, items: int) -> np.ndarray:
    recommended = np.full((users, K), -1, dtype=np.int32)
    for row in recommended:
        length = int(random.integers(0, min(items, K) + 1))
        row[:length] = random.permutation(items)[:length]
    return recommended


def draw_matrix(random, rows: int, columns: int) -> csr_matrix:
    return csr_matrix((random.random((rows, columns)) < 0.3) * random.integers(1, 4, (rows, columns)))


def naive_similarity(row, train) -> float:
    shown, cosines = [item for item in row if item >= 0], []
    for one, other in combinations(shown, 2):
        both = ((train[:, one] > 0) & (train[:, other] > 0)).sum()
        norm = math.sqrt((train[:, one] > 0).sum() * (train[:, other] > 0).sum())
        cosines.append(both / norm if norm else 0.0)
    return sum(cosines) / len(cosines) if cosines else math.nan


def naive_serendipity(row, excluded, targets, degrees) -> float:
    popular = sorted((item for item in range(len(degrees)) if not excluded[item]), key=lambda n: (-degrees[n], n))[:K]
    return sum(item >= 0 and bool(targets[item]) and item not in popular for item in row) / K


def naive_calibration(row, history, values) -> float:
    def shares(items):
        found = [values[item] for item in items if values[item].sum()]
        return sum(found) / len(found) if found else np.zeros(values.shape[1])

    p, q = shares(np.flatnonzero(history)), shares([item for item in row if item >= 0])
    terms = [a * math.log(a / (0.99 * b + 0.01 * a)) for a, b in zip(p, q) if a > 0]
    return sum(terms) if terms else math.nan


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 9), st.integers(1, 90))
@settings(max_examples=60, deadline=None)
def test_each_follows_its_definition(seed, items, training_users, users):
    random = np.random.default_rng(seed)
    train, histories = draw_matrix(random, training_users, items), draw_matrix(random, users, items)
    targets, recommended = draw_matrix(random, users, items), draw_lists(random, users, items)
    marks = (random.random((items, 3)) < 0.5).astype(float)
    values = marks / np.maximum(marks.sum(axis=1, keepdims=True), 1)
    likes, degrees = train.toarray(), np.diff(train.tocsc().indptr)
    expected = {
        "similarity": [naive_similarity(row, likes) for row in recommended],
        "serendipity": [
            naive_serendipity(row, seen, found, degrees)
            for row, seen, found in zip(recommended, histories.toarray(), targets.toarray())
        ],
        "calibration": [naive_calibration(row, seen, values) for row, seen in zip(recommended, histories.toarray())],
    }
    found = {
        "similarity": compute_intra_list_similarity(recommended, train),
        "serendipity": compute_serendipity(recommended, histories, targets, train),
        "calibration": compute_calibration(recommended, histories, csr_matrix(values)),
    }
    for name, of_users in found.items():
        assert of_users == pytest.approx(np.array(expected[name]), abs=1e-9, nan_ok=True), name


def test_folds_are_judged_by_their_own_edges_and_shown_together():
    """Two folds over the items 0, 1 and 1, 2 of three: each shows one item, and the catalogue has three."""
    train = csr_matrix(np.array([[1, 1], [0, 1], [0, 1], [0, 1]]))
    nothing = csr_matrix((1, 2))
    one = Lists(np.array([[0, -1]], dtype=np.int32), nothing, nothing, nothing, train, {})
    other = one._replace(recommended=np.array([[1, 0]], dtype=np.int32))
    names = ["coverage@2", "coverage@1", "novelty@1", "Gini@1"]
    found = compute_list_metrics(
        [metric for name in names if (metric := find_list_metric(name))],
        [(one, np.array([0, 1])), (other, np.array([1, 2]))],
        items=3,
    )
    assert {name: mean.value for name, mean in found.means.items()} == pytest.approx(
        {"coverage@2": 1.0, "coverage@1": 2 / 3, "novelty@1": 1.0, "Gini@1": 1 / 3}
    )
    assert found.of_users["novelty@1"].tolist() == [2.0, 0.0] and set(found.of_users) == {"novelty@1"}


def test_a_list_like_the_history_is_calibrated_and_one_of_another_kind_costs_the_logarithm_of_the_smoothing():
    values = csr_matrix(np.array([[1.0, 0], [0, 1], [1, 0], [0, 1], [0, 0]]))
    histories = csr_matrix(np.array([[1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1]]))
    recommended = np.array([[2, 3], [3, 1], [2, 3]], dtype=np.int32)
    assert compute_calibration(recommended, histories, values) == pytest.approx(
        [0, math.log(100), math.nan], nan_ok=True
    )


def test_names():
    assert find_list_metric("GINI@7") == ListMetric("GINI@7", "gini", None, 7)
    assert find_list_metric("Calibration[Main genre]@3") == ListMetric(
        "Calibration[Main genre]@3", "calibration", "Main genre", 3
    )
    for name in ("calibration@3", "gini[genre]@3", "gini", "gini@0", "ndcg@3", "calibration[]@3"):
        assert find_list_metric(name) is None
