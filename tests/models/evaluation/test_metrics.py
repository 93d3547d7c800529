"""Metrics against their definitions, written out over plain lists."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.sparse import csr_matrix

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


def naive(scores, history, targets) -> dict[str, float]:
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
        for metric, expected in naive(scores[user], history[user], targets[user]).items():
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
