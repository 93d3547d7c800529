"""Where items stand in each user's full ranking: the n best of a block of scores, and the places of targets.

Everywhere, the items of a user's history are left out, and a tie goes to the lower item id.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

NAN, SEEN = 1, 2  # faults of a row


class NotRankable(ValueError):
    """A user whose items cannot be ranked.

    Attributes:
        row: the first such user's row in the block.
        reason: what is wrong with it.
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row} of the block: {reason}")
        self.row, self.reason = row, reason


@dataclass(frozen=True)
class TargetRanks:
    """Where each target stands among its user's candidates, which are the items outside the history.

    Attributes:
        indptr: int64 (users + 1,), where each user's targets lie in the arrays below.
        worse: int32 (targets,), candidates with a score strictly below the target's.
        tied: int32 (targets,), other candidates with the target's very score.
        position: int32 (targets,), candidates in front of the target, ties to the lower id; 0 is the best.
        candidates: int32 (users,), how many candidates the user has, targets included.
    """

    indptr: np.ndarray
    worse: np.ndarray
    tied: np.ndarray
    position: np.ndarray
    candidates: np.ndarray


def top_items(
    scores: np.ndarray, indptr: np.ndarray, indices: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """The n best items for each user, those in the user's history left out.

    A bounded heap a user: O(items log n) at worst, and close to O(items), since most items lose to the
    heap's worst with one comparison.

    Args:
        scores: float32 (block, items), higher is better; NaN ranks with -inf, below everything.
        indptr, indices: CSR form of the block's histories, column indices of a row sorted.
        n: items wanted for each user.

    Returns:
        (ids, scores): int32 and float32, (block, n), best first, ties to the lower item id; past the last
        item that is left, id -1 and score -inf.

    Raises:
        ValueError: n is negative, or the histories do not have a row for each row of the scores.
    """
    if n < 0:
        raise ValueError(f"{n} items a user cannot be asked for; give 0 or more")
    if len(indptr) != len(scores) + 1:
        raise ValueError(f"{len(scores)} rows of scores but {len(indptr) - 1} histories")
    indptr, indices = _index_arrays(indptr, indices)
    ids = np.full((len(scores), n), -1, dtype=np.int32)
    best = np.full((len(scores), n), -np.inf, dtype=np.float32)
    if n > 0:
        _top_items(np.ascontiguousarray(scores, dtype=np.float32), indptr, indices, ids, best)
    return ids, best


def target_ranks(scores: np.ndarray, histories: csr_matrix, targets: csr_matrix) -> TargetRanks:
    """Where every target stands in its user's ranking of all items outside the history.

    Counting, not sorting: one vectorized pass over the items a target, which is three times as fast as a
    bisection of every item among the user's sorted targets even where there are 200 of them. The counts are
    those of eq. 23 of the random-graph paper, and all that recall and nDCG need.

    Args:
        scores: float32 (block, items), higher is better; infinite scores are ranked like any other.
        histories, targets: (block, items) CSR with sorted, unique column indices.

    Raises:
        NotRankable: a NaN among a user's scores, or a target that lies in the history.
        ValueError: the shapes differ.
    """
    if not scores.shape == histories.shape == targets.shape:
        raise ValueError(f"scores {scores.shape}, histories {histories.shape} and targets {targets.shape} "
                         "must have one shape")
    scores = np.ascontiguousarray(scores, dtype=np.float32)
    indptr, indices = _index_arrays(targets.indptr, targets.indices)
    worse, tied, position = (np.zeros(len(indices), dtype=np.int32) for _ in range(3))
    fault = np.zeros(len(scores), dtype=np.int8)
    known = _index_arrays(histories.indptr, histories.indices)
    _target_ranks(scores, *known, indptr, indices, worse, tied, position, fault)
    if fault.any():
        row = int(np.argmax(fault > 0))
        raise NotRankable(row, "a score is NaN" if fault[row] == NAN else "a target lies in the history")
    candidates = (scores.shape[1] - np.diff(known[0])).astype(np.int32)
    return TargetRanks(indptr, worse, tied, position, candidates)


def _index_arrays(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """CSR index arrays in the one pair of types that the kernels are compiled for."""
    return np.ascontiguousarray(indptr, dtype=np.int64), np.ascontiguousarray(indices, dtype=np.int32)


@njit(cache=True, parallel=True, nogil=True)
def _top_items(scores, indptr, indices, ids, best):
    for user in prange(len(scores)):
        history = indices[indptr[user] : indptr[user + 1]]
        _top_of_row(scores[user], history, ids[user], best[user])


@njit(cache=True, nogil=True)
def _top_of_row(scores, history, ids, best):
    """Fill `ids` and `best` (both (n,)) with one user's best items, best first.

    `history` is sorted. `ids` and `best` hold a heap whose root is the worst item kept, then are sorted in
    place by taking the root n times.
    """
    size = start = np.int64(0)  # a bare 0 would have the heap's functions compiled once more
    for place in range(len(history) + 1):
        stop = min(history[place], len(scores)) if place < len(history) else len(scores)
        for item in range(start, stop):
            if size == len(ids):
                if scores[item] > best[0]:  # an equal score has the higher id, for items come in order
                    _sift_down(ids, best, size, item, scores[item])
            else:
                score = np.float32(-np.inf) if np.isnan(scores[item]) else scores[item]
                _sift_up(ids, best, size, item, score)
                size += 1
        start = stop + 1
    for last in range(size - 1, 0, -1):
        worst_id, worst = ids[0], best[0]
        _sift_down(ids, best, last, ids[last], best[last])
        ids[last], best[last] = worst_id, worst


@njit(cache=True, nogil=True, inline="always")
def _worse(id_a, score_a, id_b, score_b):
    return score_a < score_b or (score_a == score_b and id_a > id_b)


@njit(cache=True, nogil=True)
def _sift_up(ids, best, place, item, score):
    """Put an item into the free `place` at the heap's end and let it rise above every better one."""
    while place > 0:
        parent = (place - 1) // 2
        if not _worse(item, score, ids[parent], best[parent]):
            break
        ids[place], best[place] = ids[parent], best[parent]
        place = parent
    ids[place], best[place] = item, score


@njit(cache=True, nogil=True)
def _sift_down(ids, best, size, item, score):
    """Replace the root of a heap of `size` items and let the new item sink below every worse one."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _worse(ids[child + 1], best[child + 1], ids[child], best[child]):
            child += 1
        if not _worse(ids[child], best[child], item, score):
            break
        ids[place], best[place] = ids[child], best[child]
        place = child
    ids[place], best[place] = item, score


@njit(cache=True, parallel=True, nogil=True)
def _target_ranks(scores, known_indptr, known_indices, indptr, indices, worse, tied, position, fault):
    for user in prange(len(scores)):
        start, end = indptr[user], indptr[user + 1]
        row, targets = scores[user], indices[start:end]
        history = known_indices[known_indptr[user] : known_indptr[user + 1]]
        fault[user] = _fault(row, history, targets)
        if fault[user] > 0:
            continue
        for entry in range(start, end):
            worse[entry], tied[entry], position[entry] = _count(row, history, indices[entry])


@njit(cache=True, nogil=True)
def _fault(row, history, targets):
    nans = np.int32(0)
    for item in range(len(row)):
        nans = np.int32(nans + (row[item] != row[item]))
    if nans > 0:
        return NAN
    for target in targets:
        place = np.searchsorted(history, target)
        if place < len(history) and history[place] == target:
            return SEEN
    return 0


@njit(cache=True, nogil=True)
def _count(row, history, target):
    """(worse, tied, position) of one target among the items outside the history."""
    score = row[target]
    worse_before, tied_before = _below_and_at(row[:target], score)
    worse_after, tied_after = _below_and_at(row[target + 1 :], score)
    worse, tied = worse_before + worse_after, tied_before + tied_after
    for item in history:
        worse -= row[item] < score
        tied -= row[item] == score
        tied_before -= row[item] == score and item < target
    candidates = len(row) - len(history)
    better = candidates - 1 - worse - tied
    return worse, tied, better + tied_before


@njit(cache=True, nogil=True)
def _below_and_at(row, score):
    """How many are below the score, and how many equal it: int32 sums without a branch, which vectorize."""
    below = equal = np.int32(0)
    for item in range(len(row)):
        below = np.int32(below + (row[item] < score))
        equal = np.int32(equal + (row[item] == score))
    return below, equal
