"""Ranking kernels against plain sorting."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.sparse import csr_matrix

from oneclass.models.evaluation import ranking
from oneclass.models.evaluation.ranking import CannotRank, rank_targets, rank_targets_by_tiles
from oneclass.models.numerics.threads import kernel_threads
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


def test_nan_is_ranked_below_every_finite_score():
    scores = np.array([[np.nan, -5, np.nan, 2]], dtype=np.float32)
    ids, best = top_items(scores, np.array([0, 0]), np.array([], dtype=np.int32), 3)
    assert ids.tolist() == [[3, 1, 0]]
    assert best.tolist() == [[2, -5, -np.inf]]


def test_a_history_may_name_items_beyond_the_scores():
    scores, history = np.array([[1, 2, 3]], dtype=np.float32), np.array([2, 7])
    ids, _ = top_items(scores, np.array([0, 2]), history, 3)
    assert ids.tolist() == [[1, 0, -1]]


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


def test_a_target_that_is_the_only_candidate_comes_first():
    everything_but_one = np.array([[True, True, False, True]])
    scores = np.zeros((1, 4), dtype=np.float32)
    ranks = rank_targets(scores, to_csr(everything_but_one), to_csr(~everything_but_one))
    assert (ranks.candidates[0], ranks.position[0], ranks.worse[0], ranks.tied[0]) == (1, 0, 0, 0)


@pytest.mark.parametrize("item", [0, 1, 2, 3])
def test_a_nan_is_refused_and_its_row_named(item):
    scores = np.zeros((3, 4), dtype=np.float32)
    scores[1, item] = np.nan
    history, targets = np.zeros((3, 4)), np.zeros((3, 4))
    history[:, 2] = targets[:, 3] = 1
    with pytest.raises(CannotRank, match="NaN") as caught:
        rank_targets(scores, to_csr(history), to_csr(targets))
    assert caught.value.row == 1


def test_a_target_in_the_history_is_refused():
    history, targets = np.array([[1, 0, 0], [0, 1, 1]]), np.array([[0, 1, 0], [1, 0, 1]])
    with pytest.raises(CannotRank, match="history") as caught:
        rank_targets(np.zeros((2, 3), dtype=np.float32), to_csr(history), to_csr(targets))
    assert caught.value.row == 1


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="the same shape"):
        rank_targets(np.zeros((2, 3), dtype=np.float32), to_csr(np.zeros((2, 4))), to_csr(np.zeros((2, 4))))


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one core")
def test_results_do_not_depend_on_threads():
    random = np.random.default_rng(0)
    scores = random.integers(0, 50, (64, 500)).astype(np.float32)
    marks = random.random(scores.shape)
    history, targets = to_csr(marks < 0.1), to_csr(marks > 0.95)
    found = []
    for threads in (1, 2):
        with kernel_threads(threads):
            ranks = rank_targets(scores, history, targets)
            best = top_items(scores, history.indptr, history.indices, 20)
        found.append([*best, ranks.worse, ranks.tied, ranks.position])
    for one, two in zip(*found, strict=True):
        assert one.tobytes() == two.tobytes()


@given(blocks(), st.integers(0, 9), st.integers(1, 12))
@settings(max_examples=120, deadline=None)
def test_ranks_by_tiles_are_those_of_whole_rows(block, n, columns):
    """Of two scores at once, whatever the size of a tile."""
    scores, marks = block
    excluded, targets = to_csr(marks == "history"), to_csr(marks == "target")
    both = [scores, np.negative(scores)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "TILE_COLUMNS", columns)
        found = rank_targets_by_tiles(lambda some: [whole[:, some] for whole in both], excluded, targets, n)
    for whole, ranks in zip(both, found, strict=True):
        expected = rank_targets(whole, excluded, targets, n)
        for name in ("indptr", "worse", "tied", "position", "candidates", "first"):
            np.testing.assert_array_equal(getattr(ranks, name), getattr(expected, name), err_msg=name)


def test_what_cannot_be_ranked_by_tiles_is_told(monkeypatch):
    monkeypatch.setattr(ranking, "TILE_COLUMNS", 4)
    scores, nothing = np.zeros((3, 10), dtype=np.float32), to_csr(np.zeros((3, 10)))
    with pytest.raises(CannotRank, match="row 2 of the block: a target lies in the history"):
        rank_targets_by_tiles(
            lambda some: [scores[:, some]], to_csr(np.eye(3, 10)), to_csr(np.eye(3, 10) * [[0], [0], [1]])
        )
    broken = scores.copy()
    broken[1, 9] = np.nan
    with pytest.raises(CannotRank, match="row 1 of the block: a score is NaN") as raised:
        rank_targets_by_tiles(lambda some: [scores[:, some], broken[:, some]], nothing, to_csr(np.eye(3, 10)))
    assert raised.value.score == 1
