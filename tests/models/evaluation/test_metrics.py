"""Metrics and tests against their definitions, written out over plain lists, and against simulated logs."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.beyond_accuracy import Exposure
from oneclass.models.evaluation.definitions import METRICS_AT_K
from oneclass.models.evaluation.metrics import (
    ALIASES,
    AT_K,
    Mean,
    adjust_against_best,
    adjust_benjamini_hochberg,
    adjust_holm,
    average_over_users,
    compare_paired,
    compute_user_metrics,
    concatenate_ranks,
    find_metric,
    group_by_degree,
    select_targets,
)
from oneclass.models.evaluation.ranking import rank_targets

SEEDS = st.integers(0, 2**32 - 1)
NAMES = [*(f"{name}@{k}" for name in AT_K for k in (1, 3, 20)), "map", "mrr", "ndcg", "auc", "percentile_rank"]


def ranks_of(scores, history, targets):
    matrices = [csr_matrix(np.asarray(mask, dtype=np.float32)) for mask in (history, targets)]
    return rank_targets(np.asarray(scores, dtype=np.float32), *matrices)


def compute_naively(scores, history, targets) -> dict[str, float]:
    """Every metric of one user."""
    ranking = sorted(np.flatnonzero(~history), key=lambda item: (-scores[item], item))
    wanted, found = set(np.flatnonzero(targets)), {}
    for k in (1, 3, 20, 50, 100, len(ranking)):
        relevant = [item in wanted for item in ranking[:k]]
        most, hits = min(k, len(wanted)), [at for at, is_hit in enumerate(relevant) if is_hit]
        found |= {
            f"precision@{k}": len(hits) / k,
            f"recall@{k}": len(hits) / most,
            f"recall_of_all@{k}": len(hits) / len(wanted),
            f"hit_rate@{k}": float(bool(hits)),
            f"map@{k}": sum(sum(relevant[: at + 1]) / (at + 1) for at in hits) / most,
            f"mrr@{k}": 1 / (hits[0] + 1) if hits else 0.0,
            f"ndcg@{k}": sum(1 / math.log2(at + 2) for at in hits) / sum(1 / math.log2(at + 2) for at in range(most)),
        }
    found |= {name: found[f"{name}@{len(ranking)}"] for name in ("map", "mrr", "ndcg")}

    def better(one, other):
        return (scores[one] > scores[other]) + (scores[one] == scores[other]) / 2

    others = [item for item in ranking if item not in wanted]
    pairs = [better(target, other) for target in wanted for other in others]
    found["auc"] = sum(pairs) / len(pairs) if pairs else math.nan
    before = [[better(other, target) for other in ranking if other != target] for target in wanted]
    found["percentile_rank"] = sum(sum(row) / len(row) for row in before) / len(wanted) if before[0] else math.nan
    strict = [sum(scores[t] > scores[n] for n in ranking) / len(ranking) for t in wanted]
    ties = [sum(scores[t] == scores[n] for n in ranking if n != t) / len(ranking) for t in wanted]
    found["mean_rank"] = sum(strict) / len(wanted)
    found["mean_rank_midtie"] = found["mean_rank"] + sum(ties) / len(wanted) / 2
    return found


def draw_users(seed: int, items: int, levels: int):
    """Return scores, history and targets of four users, some with a single candidate."""
    random = np.random.default_rng(seed)
    scores = random.integers(0, levels, (4, items)).astype(np.float32)
    history = random.random(scores.shape) < random.random()
    history[:, random.integers(items)] = False  # something is left to be found
    targets = ~history & (random.random(scores.shape) < random.random())
    for user in np.flatnonzero(~targets.any(axis=1)):
        targets[user, random.choice(np.flatnonzero(~history[user]))] = True
    return scores, history, targets


@given(SEEDS, st.integers(1, 160), st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_user_metrics_follow_their_definitions(seed, items, levels):
    users = draw_users(seed, items, levels)
    ranks = ranks_of(*users)
    of_run = compute_user_metrics(ranks)
    found = {name: find_metric(name)(ranks) for name in [*NAMES, *of_run]}
    for user, of_user in enumerate(zip(*users, strict=True)):
        expected = compute_naively(*of_user)
        for name, values in found.items():
            assert values[user] == pytest.approx(expected[name], abs=1e-12, nan_ok=True), name
    assert all(np.array_equal(values, found[name]) for name, values in of_run.items())
    assert (found["mean_rank"] < 1).all()


def test_blocks_are_joined_and_targets_left_out():
    users = draw_users(7, 50, 9)
    scores, history, targets = users
    joined = concatenate_ranks([ranks_of(*(of[part] for of in users)) for part in (slice(1), slice(1, None))])
    fewer = targets & (np.arange(50) % 3 == 0)
    fewer[2] = False
    rows, left = select_targets(joined, fewer[targets])
    assert rows.tolist() == np.flatnonzero(fewer.any(axis=1)).tolist() and 2 not in rows
    for found, expected in ((joined, ranks_of(*users)), (left, ranks_of(scores[rows], history[rows], fewer[rows]))):
        for name in NAMES:
            assert np.array_equal(find_metric(name)(found), find_metric(name)(expected), equal_nan=True)


def test_names_are_those_of_the_field():
    ranks = ranks_of(*draw_users(5, 40, 6))
    for name, same in {"NDCG@5": "ndcg@5", "HR@3": "hit_rate@3", "MAP": "average_precision"}.items():
        assert np.array_equal(find_metric(name)(ranks), find_metric(same)(ranks))
    assert all(find_metric(f"{alias}@3" if of in AT_K else alias) for alias, of in ALIASES.items())
    assert all(find_metric(name.replace("@k", "@4")) for name in METRICS_AT_K)
    for name in ("recall", "ndcg@0", "ndcg@-1", "ndcg@1.5", "auc@3", "sharpness", "ndcg@", ""):
        assert find_metric(name) is None, name


def test_means_over_users():
    values = {"mean_rank": np.array([0.1, 0.9, 0.4, 0.2]), "recall@20": np.array([0.0, 1.0, 1.0, 0.0])}
    found = average_over_users(values)
    assert found["recall@20"] == Mean(value=0.5, standard_error=0.25, users=4)
    assert found["median_rank"].value == pytest.approx(0.3)
    assert found["rank_p95"].value == pytest.approx(np.quantile(values["mean_rank"], 0.95))
    assert found["rank_p05"].standard_error is None
    assert average_over_users({"mean_rank": np.array([0.5])})["mean_rank"].standard_error is None


@given(SEEDS, st.integers(2, 60), st.sampled_from([1, 2, 5]))
@settings(max_examples=50, deadline=None)
def test_comparison_is_the_paired_t_test(seed, users, folds):
    """Of users in J folds with 1 + J / (J - 1) times the variance, since the models of two folds share users."""
    first, second = np.random.default_rng(seed).normal(size=(2, users)) + [[0.3], [0]]
    found, expected = compare_paired(first, second, folds), stats.ttest_rel(first, second)
    statistic = expected.statistic / np.sqrt({1: 1, 2: 3, 5: 2.25}[folds])
    assert found.difference == pytest.approx(np.mean(first) - np.mean(second))
    assert found.difference / found.standard_error == pytest.approx(statistic)
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(statistic), users - 1))
    assert compare_paired(second, first, folds).p_value == found.p_value


def test_comparisons_that_need_no_test():
    values = np.array([0.25, 0.5, 0.75])
    same, shifted = compare_paired(values, values), compare_paired(values + 1, values)
    assert (same.difference, same.standard_error, same.p_value, same.users) == (0, 0, 1, 3)
    assert (shifted.difference, shifted.p_value) == (1, 0)
    single = compare_paired(values[:1], values[1:2])
    assert (single.difference, single.standard_error, single.p_value) == (-0.25, None, None)


@given(SEEDS, st.integers(1, 80))
@settings(max_examples=50, deadline=None)
def test_ranks_are_grouped_by_powers_of_two_of_the_degree(seed, edges):
    random = np.random.default_rng(seed)
    ranks, users = random.random(edges), random.integers(0, 32, edges)
    bounds = [(0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, 31)]

    def inside(low, high, degrees):
        return (degrees >= low) & (degrees <= high)

    shares = [0.05, 0.25, 0.5, 0.75, 0.95]
    alone = [(*ends, ranks[inside(*ends, users)]) for ends in bounds if inside(*ends, users).any()]
    assert [(one.low, one.high, one.edges, one.mean, one.percentiles) for one in group_by_degree(ranks, users)] == [
        (low, high, len(some), pytest.approx(some.mean()), pytest.approx(tuple(np.quantile(some, shares))))
        for low, high, some in alone
    ]


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


# Of equal p-values, of 0 and of 1 there are some.
P_VALUES = st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.2, 1.0])), min_size=1, max_size=6)


def smallest_level_by_closed_testing(p_values: list[float], hypothesis: int, true_too: int = 0) -> float:
    """The level at which Bonferroni's test rejects every intersection of hypotheses that includes this one; `true_too`
    more hypotheses, without a test of their own, are in all of them.
    """
    others = [i for i in range(len(p_values)) if i != hypothesis]
    sets = [(hypothesis, *more) for size in range(len(p_values)) for more in combinations(others, size)]
    return min(1, max((len(one) + true_too) * min(p_values[i] for i in one) for one in sets))


@settings(max_examples=100, deadline=None)
@given(P_VALUES)
def test_holms_procedure_is_bonferronis_closed_test(p_values):
    expected = [smallest_level_by_closed_testing(p_values, i) for i in range(len(p_values))]
    assert adjust_holm(np.array(p_values)).tolist() == pytest.approx(expected)


@settings(max_examples=100, deadline=None)
@given(P_VALUES)
def test_against_the_best_each_list_may_be_the_best_one(p_values):
    """The best list is a hypothesis too, which no test rejects; of the others each has as many one-sided tests."""
    one_sided = [len(p_values) * p_value / 2 for p_value in p_values]
    expected = [smallest_level_by_closed_testing(one_sided, i, true_too=1) for i in range(len(p_values))]
    assert adjust_against_best(np.array(p_values)).tolist() == pytest.approx(expected)


@settings(max_examples=100, deadline=None)
@given(P_VALUES)
def test_the_false_discovery_rate_is_scipys(p_values):
    assert adjust_benjamini_hochberg(np.array(p_values)) == pytest.approx(stats.false_discovery_control(p_values))


USERS, ITEMS, FOLDS, K = 60, 40, 5, 20
DISCOUNTS = 1 / np.log2(np.arange(2, K + 2))


def draw_log(generator):
    """Draw twelve items for each user, of a long tail and preferably of the user's taste: bool (USERS, ITEMS)."""
    is_liked = generator.integers(3, size=(USERS, 1)) == generator.integers(3, size=ITEMS)
    keys = generator.gumbel(size=(USERS, ITEMS)) + np.log((1 + np.arange(ITEMS)) ** -0.7 * np.where(is_liked, 4, 1))
    return keys >= np.sort(keys, axis=1)[:, -12:-11]


def compute_ndcg(scores, histories, targets):
    top = np.argsort(-np.where(histories, -np.inf, scores), axis=1, kind="stable")[:, :K]
    best = [DISCOUNTS[:count].sum() for count in targets.sum(axis=1)]
    return (np.take_along_axis(targets, top, axis=1) * DISCOUNTS).sum(axis=1) / best


def judge_folds(log, generator):
    """Return each user's nDCG by cosines of items and by popularity, fitted on the users of the other folds."""
    values, of_fold = [], np.arange(USERS) % FOLDS
    for fold in range(FOLDS):
        train, users = log[of_fold != fold].astype(float), log[of_fold == fold]
        targets = users & (generator.random(users.shape) < 0.25)
        with_targets = targets.any(axis=1)
        histories, targets = (users & ~targets)[with_targets], targets[with_targets]
        degrees = train.sum(axis=0)
        cosines = train.T @ train / np.sqrt(np.maximum(np.outer(degrees, degrees), 1))
        np.fill_diagonal(cosines, 0)
        scores = histories @ cosines, np.broadcast_to(degrees, histories.shape)
        values.append([compute_ndcg(one, histories, targets) for one in scores])
    return np.hstack(values)


def test_the_stated_error_covers_what_differences_over_overlapping_folds_vary_by():
    judged = []
    for seed in range(150):
        generator = np.random.default_rng(seed)
        judged.append(judge_folds(draw_log(generator), generator))
    spread = np.std([compare_paired(*values).difference for values in judged], ddof=1)
    plain, corrected = (
        np.sqrt(np.mean([compare_paired(*values, folds).standard_error ** 2 for values in judged]))
        for folds in (1, FOLDS)
    )
    assert spread > 1.1 * plain  # as if folds were independent, errors are too small
    assert 0.7 * corrected < spread < corrected
