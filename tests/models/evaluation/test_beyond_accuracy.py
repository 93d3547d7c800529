"""What lists are like, against the definitions written out over plain lists."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.beyond_accuracy import Exposure, gini


def naive(lists, histories, degrees, users) -> dict[str, float]:
    trained = [item for item, degree in enumerate(degrees) if degree > 0]
    shown = [sum(item in row for row in lists) for item in trained]

    def over_users(of_item):
        return sum(sum(map(of_item, row)) / len(row) for row in lists) / len(lists)

    def percentile(item):
        return sum((degrees[item] > degrees[n]) + (degrees[item] == degrees[n]) / 2 for n in trained) / len(trained)

    known = [(row, past) for row, past in zip(lists, histories) if sum(degrees[item] for item in past)]
    found = {
        "coverage@20": sum(count > 0 for count in shown) / len(trained),
        "novelty@20": over_users(lambda item: -math.log2(max(degrees[item], 1) / users)),
        "popularity_percentile@20": over_users(percentile),
        "gini@20": sum(abs(a - b) for a in shown for b in shown) / (2 * len(shown) * max(sum(shown), 1)),
    }
    if known:
        gap_lists = sum(sum(degrees[item] for item in row) / len(row) for row, _ in known)
        gap_histories = sum(sum(degrees[item] for item in past) / len(past) for _, past in known)
        found["popularity_lift@20"] = gap_lists / gap_histories - 1
    return found


@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_every_metric_follows_its_definition_in_any_blocks(seed, items, users):
    random = np.random.default_rng(seed)
    degrees = random.integers(0, 9, items)
    degrees[0] = 3
    marks = random.random((users, items)) < 0.3
    lengths = random.integers(1, min(items, 20) + 1, users)
    lists = [random.permutation(items)[:length].tolist() for length in lengths]
    recommended = np.full((users, 20), -1, dtype=np.int32)
    for user, row in enumerate(lists):
        recommended[user, : len(row)] = row
    exposure = Exposure(degrees, 10)
    cut = int(random.integers(1, users + 1))
    taking = Exposure(degrees, 10)
    for block in (slice(0, cut), slice(cut, users)):
        exposure.add(recommended[block], csr_matrix(marks[block].astype(np.float32)))
        another = exposure.copy_empty()  # whatever that one has counted
        another.add(recommended[block], csr_matrix(marks[block].astype(np.float32)))
        taking.take(another.shown)
    found = exposure.metrics()
    assert taking.metrics() == found
    histories = [np.flatnonzero(row).tolist() for row in marks]
    expected = naive(lists, histories, degrees.tolist(), 10)
    assert {name: one.value for name, one in found.items()} == pytest.approx(expected, abs=1e-12)
    assert found["coverage@20"].standard_error is None and found["novelty@20"].users == users


def test_an_example_worked_by_hand():
    exposure = Exposure(np.array([8, 2, 1, 0]), 8)
    exposure.add(np.array([[0, 1], [0, -1]], dtype=np.int32), csr_matrix(np.array([[0, 0, 1, 0], [0, 1, 1, 0]])))
    found = exposure.metrics()
    assert found["coverage@20"].value == pytest.approx(2 / 3)
    assert (found["novelty@20"].value, found["novelty@20"].standard_error) == (0.5, pytest.approx(0.5 / math.sqrt(2)))
    assert found["popularity_percentile@20"].value == pytest.approx((4 / 6 + 5 / 6) / 2)
    assert found["gini@20"].value == pytest.approx(4 / 9)  # shown 2, 1 and 0 times
    assert found["popularity_lift@20"].value == pytest.approx(13 / 2.5 - 1)


def test_gini_runs_from_equal_to_one_item_alone():
    assert gini(np.full(5, 7)) == 0
    assert gini(np.array([0, 0, 0, 9])) == pytest.approx(3 / 4)
    assert gini(np.zeros(3)) == 0
    assert gini(np.array([4, 1, 2])) == gini(np.array([1, 2, 4]))


def test_the_lift_errs_like_a_ratio_of_means():
    """Against the bootstrap, which knows nothing of the delta method."""
    random = np.random.default_rng(3)
    degrees = random.integers(1, 100, 60)
    recommended = random.integers(0, 60, (400, 20)).astype(np.int32)
    histories = csr_matrix((random.random((400, 60)) < 0.1).astype(np.float32))
    exposure = Exposure(degrees, 400)
    exposure.add(recommended, histories)
    found = exposure.metrics()["popularity_lift@20"]
    lists = degrees[recommended].mean(axis=1)
    past = np.array([degrees[row.indices].mean() if row.nnz else np.nan for row in histories])
    lists, past = lists[~np.isnan(past)], past[~np.isnan(past)]
    draws = random.integers(0, len(past), (4000, len(past)))
    assert found.standard_error == pytest.approx(np.std(lists[draws].mean(axis=1) / past[draws].mean(axis=1)), rel=0.05)
