"""Ranking kernels against plain sorting."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.metrics import average_over_users, compare_paired
from oneclass.models.evaluation.ranking import CannotRank, rank_targets
from oneclass.models.evaluation.ranks_apart import NEW, REPEATED, rank_new_and_repeated
from oneclass.models.numerics.top_k import NUM_GROUPS, top_items

LEVELS = st.sampled_from([-np.inf, -2.5, 0.0, 1.0, 1.0000001, 3.0, np.inf])  # few, so that ties are common
MARKS = st.sampled_from(["history", "target", "other"])


@st.composite
def blocks(draw):
    """(scores, marks) of a few users over a few items."""
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 40)))
    scores = draw(npst.arrays(np.float32, shape, elements=LEVELS.map(np.float32)))
    return scores, draw(npst.arrays("U7", shape, elements=MARKS))


def to_csr(mask) -> csr_matrix:
    matrix = csr_matrix(np.asarray(mask, dtype=np.float32))
    matrix.sort_indices()
    return matrix


def order_candidates(scores, history):
    """Candidates best first, ties to the lower id."""
    return sorted(np.flatnonzero(~history), key=lambda item: (-scores[item], item))


@given(blocks(), st.integers(0, 50))
@settings(max_examples=80, deadline=None)
def test_top_items_are_those_of_a_full_sort(block, n):
    scores, marks = block
    history = marks == "history"
    ids, best = top_items(scores, to_csr(history).indptr, to_csr(history).indices, n)
    for user in range(len(scores)):
        expected = order_candidates(scores[user], history[user])[:n]
        missing = n - len(expected)
        assert ids[user].tolist() == expected + [-1] * missing
        assert best[user].tolist() == [scores[user, item] for item in expected] + [-np.inf] * missing
    assert (ids.dtype, best.dtype) == (np.int32, np.float32)


@pytest.mark.parametrize("n", [1, 20, NUM_GROUPS // 2, NUM_GROUPS // 2 + 1])
@pytest.mark.parametrize("spread", ["distinct", "tied", "mostly -inf", "mostly NaN", "falling", "rising"])
def test_top_items_of_long_rows_are_those_of_a_full_sort(spread, n):
    rng, items = np.random.default_rng(n), 5 * NUM_GROUPS + 7
    scores = rng.normal(size=(6, items)).astype(np.float32)
    history = rng.random((6, items)) < np.array([0, 0.1, 0.5, 0.9, 0.99, 1.0])[:, None]
    history[1] |= scores[1] > 0.5  # the best are known
    if spread == "tied":
        scores = np.round(scores)
    elif spread in ("falling", "rising"):
        scores = np.sort(scores)[:, :: 1 if spread == "rising" else -1]
    elif spread != "distinct":
        scores[rng.random(scores.shape) < 0.97] = -np.inf if spread == "mostly -inf" else np.nan
    ids, best = top_items(scores, to_csr(history).indptr, to_csr(history).indices, n)
    known = np.where(np.isnan(scores), -np.inf, scores)
    for user in range(6):
        expected = order_candidates(known[user], history[user])[:n]
        missing = n - len(expected)
        assert ids[user].tolist() == expected + [-1] * missing
        assert best[user].tolist() == [known[user, item] for item in expected] + [-np.inf] * missing


@pytest.mark.parametrize(("n", "rows"), [(-1, 1), (3, 2)])
def test_top_items_refuses_what_it_cannot_do(n, rows):
    scores, nothing = np.zeros((1, 4), dtype=np.float32), np.zeros(0, dtype=int)
    with pytest.raises(ValueError, match="items for each user|histories"):
        top_items(scores, np.zeros(rows + 1, dtype=int), nothing, n)


@given(blocks())
@settings(max_examples=80, deadline=None)
def test_target_ranks_are_those_of_a_full_sort(block):
    scores, marks = block
    history, wanted = marks == "history", marks == "target"
    ranks = rank_targets(scores, to_csr(history), to_csr(wanted), 3)
    assert rank_targets(scores, to_csr(history), to_csr(wanted)).first.shape == (len(scores), 0)
    for user in range(len(scores)):
        candidates = order_candidates(scores[user], history[user])
        assert ranks.candidates[user] == len(candidates)
        assert ranks.first[user].tolist() == (candidates + [-1] * 3)[:3]
        entries = range(ranks.indptr[user], ranks.indptr[user + 1])
        for entry, target in zip(entries, np.flatnonzero(wanted[user]), strict=True):
            others = [scores[user, item] for item in candidates if item != target]
            assert ranks.worse[entry] == sum(other < scores[user, target] for other in others)
            assert ranks.tied[entry] == sum(other == scores[user, target] for other in others)
            assert ranks.position[entry] == candidates.index(target)


@pytest.mark.parametrize("item", [0, 1, 2, 3])
def test_a_nan_is_refused_and_its_row_named(item):
    scores = np.zeros((3, 4), dtype=np.float32)
    scores[1, item] = np.nan
    history, targets = np.zeros((3, 4)), np.zeros((3, 4))
    history[:, 2] = targets[:, 3] = 1
    for rank in (rank_targets, rank_new_and_repeated):
        with pytest.raises(CannotRank, match="NaN") as caught:
            rank(scores, to_csr(history), to_csr(targets))
        assert caught.value.row == 1


def test_a_target_in_the_history_is_refused():
    history, targets = np.array([[1, 0, 0], [0, 1, 1]]), np.array([[0, 1, 0], [1, 0, 1]])
    with pytest.raises(CannotRank, match="history") as caught:
        rank_targets(np.zeros((2, 3), dtype=np.float32), to_csr(history), to_csr(targets))
    assert caught.value.row == 1


def compute_ndcg(scores, candidates, wanted) -> float:
    """nDCG@100 of the wanted items among the candidates; NaN without a wanted one."""
    ranking = sorted(candidates, key=lambda item: (-scores[item], item))[:100]
    if not wanted:
        return math.nan
    gain = sum(1 / math.log2(place + 2) for place, item in enumerate(ranking) if item in wanted)
    return gain / sum(1 / math.log2(place + 2) for place in range(min(100, len(wanted))))


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 160), st.integers(1, 30), st.sampled_from([0, 0.1, 0.9]), st.floats(0, 1)
)
@settings(max_examples=80, deadline=None)
def test_each_kind_is_ranked_among_its_own_items(seed, items, levels, history_share, target_share):
    random = np.random.default_rng(seed)
    scores = random.integers(0, levels, (4, items)).astype(np.float32)
    history, targets = random.random(scores.shape) < history_share, random.random(scores.shape) < target_share
    found = rank_new_and_repeated(scores, to_csr(history), to_csr(targets))
    for user in range(len(scores)):
        own, wanted = (set(np.flatnonzero(mask[user]).tolist()) for mask in (history, targets))
        new = compute_ndcg(scores[user], set(range(items)) - own, wanted - own)
        assert found[NEW][user] == pytest.approx(new, abs=1e-12, nan_ok=True)
        assert found[REPEATED][user] == pytest.approx(
            compute_ndcg(scores[user], own, wanted & own), abs=1e-12, nan_ok=True
        )


def test_means_and_comparisons_are_over_the_users_with_such_a_target():
    values = np.array([np.nan, 0.25, 0.75, np.nan])
    means = average_over_users({NEW: values, REPEATED: np.full(4, np.nan), "mean_rank": np.ones(4)})
    assert (means[NEW].value, means[NEW].users) == (0.5, 2) and REPEATED not in means
    assert means[NEW].standard_error == pytest.approx(0.25 / math.sqrt(2))
    compared, plain = compare_paired(values, np.zeros(4)), compare_paired(values[1:3], np.zeros(2))
    assert compared == plain and compared.users == 2
