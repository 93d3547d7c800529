"""Metrics at any k against their definitions over plain lists."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.definitions import METRICS_AT_K
from oneclass.models.evaluation.metrics import compute_user_metrics
from oneclass.models.evaluation.metrics_at_k import ALIASES, AT_K, concatenate_ranks, find_metric, select_targets
from oneclass.models.evaluation.ranking import rank_targets

NAMES = [*(f"{name}@{k}" for name in AT_K for k in (1, 3, 20)), "map", "mrr", "ndcg", "auc", "percentile_rank"]


def compute_naively(scores: list[float], candidates: list[int], targets: set[int]) -> dict[str, float]:
    """Every metric of one user."""
    ranking = sorted(candidates, key=lambda item: (-scores[item], item))
    found = {}
    for k in (1, 3, 20, len(ranking)):
        relevant = [item in targets for item in ranking[:k]]
        most = min(k, len(targets))
        precisions = [sum(relevant[: at + 1]) / (at + 1) for at in range(len(relevant)) if relevant[at]]
        found |= {
            f"precision@{k}": sum(relevant) / k,
            f"recall@{k}": sum(relevant) / most,
            f"recall_of_all@{k}": sum(relevant) / len(targets),
            f"hit_rate@{k}": float(any(relevant)),
            f"map@{k}": sum(precisions) / most,
            f"mrr@{k}": max((1 / (at + 1) for at in range(len(relevant)) if relevant[at]), default=0.0),
            f"ndcg@{k}": sum(is_hit / math.log2(at + 2) for at, is_hit in enumerate(relevant))
            / sum(1 / math.log2(at + 2) for at in range(most)),
        }
    found |= {name: found[f"{name}@{len(ranking)}"] for name in ("map", "mrr", "ndcg")}

    def better(one, other):
        return (scores[one] > scores[other]) + (scores[one] == scores[other]) / 2

    others = [item for item in ranking if item not in targets]
    pairs = [better(target, other) for target in targets for other in others]
    found["auc"] = sum(pairs) / len(pairs) if pairs else math.nan
    before = [[better(other, target) for other in ranking if other != target] for target in targets]
    found["percentile_rank"] = sum(sum(row) / len(row) for row in before) / len(targets) if before[0] else math.nan
    return found


def draw_users(seed: int, items: int, levels: int):
    """Return scores, history and targets of four users, some with a single candidate."""
    random = np.random.default_rng(seed)
    scores = random.integers(0, levels, (4, items)).astype(np.float32)
    history = random.random(scores.shape) < random.random()
    history[:, random.integers(items)] = False
    targets = ~history & (random.random(scores.shape) < random.random())
    for user in np.flatnonzero(~targets.any(axis=1)):
        targets[user, random.choice(np.flatnonzero(~history[user]))] = True
    return scores, history, targets


def target_ranks(scores, history, targets):
    return rank_targets(scores, csr_matrix(history.astype(np.float32)), csr_matrix(targets.astype(np.float32)))


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_metrics_follow_their_definitions(seed, items, levels):
    scores, history, targets = draw_users(seed, items, levels)
    ranks = target_ranks(scores, history, targets)
    for name in NAMES:
        values = find_metric(name)(ranks)
        for user in range(4):
            candidates, wanted = np.flatnonzero(~history[user]).tolist(), set(np.flatnonzero(targets[user]).tolist())
            expected = compute_naively(scores[user].tolist(), candidates, wanted)[name]
            assert values[user] == pytest.approx(expected, abs=1e-12, nan_ok=True), name


@pytest.mark.parametrize("seed", range(5))
def test_values_are_those_of_the_fixed_metrics(seed):
    ranks = target_ranks(*draw_users(seed, 300, 50))
    for name, values in compute_user_metrics(ranks).items():
        assert np.array_equal(find_metric(name)(ranks), values), name


def test_percentile_rank_is_the_complement_of_the_mean_rank():
    ranks = target_ranks(*draw_users(3, 60, 12))
    share = ranks.candidates / (ranks.candidates - 1)
    expected = 1 - find_metric("mean_rank_midtie")(ranks) * share
    assert find_metric("mpr")(ranks) == pytest.approx(expected, abs=1e-12)


def test_blocks_are_joined_and_targets_left_out():
    scores, history, targets = draw_users(7, 50, 9)
    whole, blocks = (
        target_ranks(scores, history, targets),
        [target_ranks(*(of[:1] for of in (scores, history, targets)))],
    )
    joined = concatenate_ranks([*blocks, target_ranks(*(of[1:] for of in (scores, history, targets)))])
    chosen = np.flatnonzero(targets)  # of all entries, in the order of the targets
    fewer = targets & (np.arange(50) % 3 == 0)
    fewer[2] = False
    users, left = select_targets(joined, fewer.ravel()[chosen])
    assert users.tolist() == np.flatnonzero(fewer.any(axis=1)).tolist() and 2 not in users
    expected = target_ranks(*(of[users] for of in (scores, history, fewer)))
    for name in NAMES:
        assert np.array_equal(find_metric(name)(joined), find_metric(name)(whole), equal_nan=True)
        assert np.array_equal(find_metric(name)(left), find_metric(name)(expected), equal_nan=True)


def test_names_are_those_of_the_field():
    ranks = target_ranks(*draw_users(5, 40, 6))
    for name, same in {"NDCG@5": "ndcg@5", "HR@3": "hit_rate@3", "MAP": "average_precision"}.items():
        assert np.array_equal(find_metric(name)(ranks), find_metric(same)(ranks))
    assert all(find_metric(f"{alias}@3" if of in AT_K else alias) for alias, of in ALIASES.items())
    assert all(find_metric(name.replace("@k", "@4")) for name in METRICS_AT_K)
    for name in ("recall", "ndcg@0", "ndcg@-1", "ndcg@1.5", "auc@3", "sharpness", "ndcg@", ""):
        assert find_metric(name) is None, name
