"""Metrics against their definitions, written out over plain lists."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.beyond_accuracy import Exposure, gini
from oneclass.models.evaluation.metrics import (
    Mean,
    average_over_users,
    compare_paired,
    compute_edge_ranks,
    compute_user_metrics,
    group_by_both_degrees,
    group_by_degree,
)
from oneclass.models.evaluation.ranking import rank_targets

SEEDS = st.integers(0, 2**32 - 1)


def ranks_of(scores, history, targets):
    matrices = [csr_matrix(np.asarray(mask, dtype=np.float32)) for mask in (history, targets)]
    return rank_targets(np.asarray(scores, dtype=np.float32), *matrices)


def compute_naively(scores, history, targets) -> dict[str, float]:
    """Every metric of one user."""
    candidates = sorted(np.flatnonzero(~history), key=lambda item: (-scores[item], item))
    wanted = set(np.flatnonzero(targets))
    found = {}
    for k in (20, 50):
        hits = sum(item in wanted for item in candidates[:k])
        found[f"recall@{k}"] = hits / min(k, len(wanted))
        if k == 20:
            found["recall_of_all@20"] = hits / len(wanted)
    for k in (20, 100):
        gain = sum(1 / math.log2(place + 2) for place, item in enumerate(candidates[:k]) if item in wanted)
        found[f"ndcg@{k}"] = gain / sum(1 / math.log2(place + 2) for place in range(min(k, len(wanted))))
    strict = [sum(scores[t] > scores[n] for n in candidates) / len(candidates) for t in wanted]
    ties = [sum(scores[t] == scores[n] for n in candidates if n != t) / len(candidates) for t in wanted]
    found["mean_rank"] = sum(strict) / len(wanted)
    found["mean_rank_midtie"] = found["mean_rank"] + sum(ties) / len(wanted) / 2
    return found


@given(SEEDS, st.integers(2, 160), st.integers(1, 30), st.floats(0, 0.9), st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_user_metrics_follow_their_definitions(seed, items, levels, history_share, target_share):
    random = np.random.default_rng(seed)
    scores = random.integers(0, levels, (4, items)).astype(np.float32)
    history = random.random(scores.shape) < history_share
    history[:, random.integers(items)] = False  # something is left to be found
    targets = ~history & (random.random(scores.shape) < target_share)
    for user in np.flatnonzero(~targets.any(axis=1)):
        targets[user, random.choice(np.flatnonzero(~history[user]))] = True
    found = compute_user_metrics(ranks_of(scores, history, targets))
    for user in range(len(scores)):
        for metric, expected in compute_naively(scores[user], history[user], targets[user]).items():
            assert found[metric][user] == pytest.approx(expected, abs=1e-12), metric
    assert (found["mean_rank"] < 1).all()


def test_an_example_worked_by_hand():
    """Items 0..5 score 9 5 5 5 1 0, item 0 is in the history, items 2 and 5 have to be found.

    The ranking is 1 2 3 4 5, so item 2 is second and item 5 fifth of five candidates. Item 2 beats items 4
    and 5 and ties with 1 and 3; item 5 beats nothing.
    """
    ranks = ranks_of([[9, 5, 5, 5, 1, 0]], [[1, 0, 0, 0, 0, 0]], [[0, 0, 1, 0, 0, 1]])
    assert ranks.position.tolist() == [1, 4]
    assert compute_edge_ranks(ranks).tolist() == [2 / 5, 0]
    found = compute_user_metrics(ranks)
    assert found["recall@20"].tolist() == [1]
    assert found["mean_rank"].tolist() == [pytest.approx(1 / 5)]
    assert found["mean_rank_midtie"].tolist() == [pytest.approx((3 / 5 + 0) / 2)]
    ideal = 1 + 1 / math.log2(3)
    assert found["ndcg@20"].tolist() == [pytest.approx((1 / math.log2(3) + 1 / math.log2(6)) / ideal)]


def test_recall_of_a_user_with_more_targets_than_places():
    targets = np.arange(60) < 40
    found = compute_user_metrics(ranks_of([np.arange(60)[::-1]], [np.zeros(60)], [targets]))
    assert found["recall@20"][0] == found["recall@50"][0] == found["ndcg@20"][0] == 1
    assert found["recall_of_all@20"][0] == 0.5


def test_a_perfect_ranking_never_passes_one():
    random = np.random.default_rng(3)
    scores = random.random((500, 120))
    cuts = np.sort(scores, axis=1)[np.arange(500), -random.integers(1, 100, 500)]
    targets = scores >= cuts[:, None]
    found = compute_user_metrics(ranks_of(scores, np.zeros(scores.shape), targets))
    assert found["ndcg@100"] == pytest.approx(np.ones(500))
    assert max(values.max() for values in found.values()) == 1


def test_constant_scores_beat_nothing_and_half_of_the_ties():
    history, targets = np.arange(10) < 3, np.arange(10) == 6
    ranks = ranks_of(np.zeros((1, 10)), [history], [targets])
    assert compute_edge_ranks(ranks).tolist() == [0]
    assert compute_edge_ranks(ranks, midtie=True).tolist() == [0.5 * 6 / 7]
    assert ranks.position.tolist() == [3]


def test_random_scores_rank_about_one_half():
    random = np.random.default_rng(7)
    scores = random.random((2000, 200))
    targets = np.arange(200) == random.integers(200, size=(2000, 1))
    ranks = ranks_of(scores, np.zeros(scores.shape), targets)
    mean = average_over_users(compute_user_metrics(ranks))["mean_rank"]
    assert mean.standard_error == pytest.approx(math.sqrt(1 / 12 / 2000), rel=0.05)
    assert abs(mean.value - 0.5) < 4 * mean.standard_error


def test_a_user_without_a_target_is_refused():
    with pytest.raises(ValueError, match="user 1 of the block"):
        compute_user_metrics(ranks_of(np.zeros((2, 3)), np.zeros((2, 3)), [[0, 1, 0], [0, 0, 0]]))


def test_means_over_users():
    values = {"mean_rank": np.array([0.1, 0.9, 0.4, 0.2]), "recall@20": np.array([0.0, 1.0, 1.0, 0.0])}
    found = average_over_users(values)
    assert found["recall@20"] == Mean(value=0.5, standard_error=0.25, users=4)
    assert found["median_rank"].value == pytest.approx(0.3)
    assert found["rank_p95"].value == pytest.approx(np.quantile(values["mean_rank"], 0.95))
    assert found["rank_p05"].standard_error is None
    assert average_over_users({"mean_rank": np.array([0.5])})["mean_rank"].standard_error is None


@given(SEEDS, st.integers(2, 60))
@settings(max_examples=50, deadline=None)
def test_comparison_is_the_paired_t_test(seed, users):
    first, second = np.random.default_rng(seed).normal(size=(2, users)) + [[0.3], [0]]
    found, expected = compare_paired(first, second), stats.ttest_rel(first, second)
    assert found.difference == pytest.approx(np.mean(first) - np.mean(second))
    assert found.difference / found.standard_error == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert compare_paired(second, first).p_value == found.p_value


def test_comparisons_that_need_no_test():
    values = np.array([0.25, 0.5, 0.75])
    same, shifted = compare_paired(values, values), compare_paired(values + 1, values)
    assert (same.difference, same.standard_error, same.p_value, same.users) == (0, 0, 1, 3)
    assert (shifted.difference, shifted.p_value) == (1, 0)
    single = compare_paired(values[:1], values[1:2])
    assert (single.difference, single.standard_error, single.p_value) == (-0.25, None, None)


def test_degree_bins_are_powers_of_two():
    degrees = np.array([0, 1, 2, 3, 4, 7, 8, 1023, 1024])
    ranks = np.arange(9) / 10
    found = group_by_degree(ranks, degrees)
    assert [(one.low, one.high, one.edges) for one in found] == [
        (0, 0, 1),
        (1, 1, 1),
        (2, 3, 2),
        (4, 7, 2),
        (8, 15, 1),
        (512, 1023, 1),
        (1024, 2047, 1),
    ]
    assert found[2].mean == pytest.approx(0.25)
    expected = np.quantile([0.2, 0.3], [0.05, 0.25, 0.5, 0.75, 0.95])
    assert found[2].percentiles == pytest.approx(tuple(expected))


@given(SEEDS, st.integers(1, 80))
@settings(max_examples=50, deadline=None)
def test_both_degrees_are_crossed(seed, edges):
    random = np.random.default_rng(seed)
    ranks, (users, items) = random.random(edges), random.integers(0, 20, (2, edges))
    bounds = [(0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, 31)]
    expected = []
    for user in bounds:
        for item in bounds:
            inside = [r for r, u, i in zip(ranks, users, items) if user[0] <= u <= user[1] and item[0] <= i <= item[1]]
            if inside:
                expected.append((user, item, len(inside), pytest.approx(sum(inside) / len(inside))))
    found = group_by_both_degrees(ranks, users, items)
    assert [(one.user, one.item, one.edges, one.mean) for one in found] == expected


def naive_beyond_accuracy(lists, histories, degrees, users) -> dict[str, float]:
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
    expected = naive_beyond_accuracy(lists, histories, degrees.tolist(), 10)
    assert {name: one.value for name, one in found.items()} == pytest.approx(expected, abs=1e-12)
    assert found["coverage@20"].standard_error is None and found["novelty@20"].users == users


def test_an_example_of_lists_worked_by_hand():
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
