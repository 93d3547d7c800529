"""The n best items of one user without the scores of the others.

A score is s_i = w_i - h (S w)_i + <y, a_i>, where the walk w = x A is sparse and not negative, h >= 0, and the low-pass
is a product of the user's k numbers y with those of the item. The last two cost most, and are computed for few items:

1. s_i <= w_i + |y| |a_i|, by Cauchy and Schwarz, leaves out the items whose bound is below n scores that are known.
2. Of the others, the product with a_i rounded to 8 bits, and a bound of what rounding changes, leaves out most.
3. Then s_i <= w_i + <y, a_i>, and the scores themselves, the largest bounds first, until none reaches the n-th score.

Every sum has the terms and the order of `GraphFilter._scores`, so a score has the same bits as there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numba import njit

from oneclass.models.numerics.matmul import as_read_only
from oneclass.models.numerics.simd import element, pad_width
from oneclass.models.numerics.sparse_products import SparseTable, times_vector

FIRST_ITEMS = 1024  # with the longest a_i, among which the first n scores are found
MAX_LIST = 256  # items of a list; longer ones rank all items
ITEMS_PER_STEP = 32  # scores that are computed before the bounds are looked at again
LEVELS = 127  # of a number rounded to 8 bits, on either side of zero
ROWS = 4096  # of the table that are rounded at a time
ROUNDING = 2.0**-22  # of a float32 product, for each of its terms, relative to |y| |a|; a generous bound
WALK_SLACK = np.float32(1 + 2.0**-18)  # w_i before the degree weights are divided out and multiplied again
FEW_USERS = 16  # one in so many: reading the rows of so many users here and there takes as long as reading all in order

ItemScorer = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class LowPassTable:
    """The second factor of the low-pass, a row for each item, in full and rounded to 8 bits.

    Attributes:
        rows: float32 (items, k), a_i.
        codes: int8 (items, width), a_i over its scale, padded with zeros.
        scales: float32 (items,).
        lengths: float32 (items,), |a_i|, rounded up.
        errors: float32 (items,), an upper bound of |a_i - scale x code|.
        longest: int32, the FIRST_ITEMS items with the longest a_i.
    """

    rows: np.ndarray
    codes: np.ndarray
    scales: np.ndarray
    lengths: np.ndarray
    errors: np.ndarray
    longest: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> Self:
        """Round a table, float32 (items, k)."""
        items, k = rows.shape
        codes = np.zeros((items, pad_width(max(1, k), 64)), dtype=np.int8)
        scales, lengths, errors = np.empty((3, items), dtype=np.float32)
        for start in range(0, items, ROWS):
            some = rows[start : start + ROWS]
            scale = np.abs(some).max(axis=1, initial=0) / np.float32(LEVELS)
            code = np.rint(some / np.where(scale > 0, scale, 1)[:, None])
            codes[start : start + ROWS, :k], scales[start : start + ROWS] = code, scale
            length, error = (
                np.sqrt(np.einsum("ij,ij->i", of, of, dtype=np.float64)) for of in (some, some - scale[:, None] * code)
            )
            lengths[start : start + ROWS] = length * (1 + (k + 8) * ROUNDING)
            errors[start : start + ROWS] = error * (1 + (k + 8) * ROUNDING) + length * (k + 8) * ROUNDING
        longest = np.argsort(-lengths, kind="stable")[:FIRST_ITEMS].astype(np.int32)
        return cls(rows, codes, scales, lengths, errors, longest)

    def times(self, low: np.ndarray, items: np.ndarray) -> np.ndarray:
        """<y, a_i> of some items, float32, with the bits of `dense_times`."""
        out = np.empty(len(items), dtype=np.float32)
        _row_products(as_read_only(self.rows, np.float32), as_read_only(low, np.float32), items.astype(np.int32), out)
        return out


def select_best_items(
    table: LowPassTable, walk: np.ndarray, low: np.ndarray, score: ItemScorer, excluded: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the n best items of one user and their scores, best first; of equal scores the lower id comes first.

    None if fewer than n of the first items are left or have scores above zero: then an item without any evidence may be
    among the best, and all must be ranked.

    Args:
        walk: float32 (items,), w, not negative.
        low: float32 (k,), y.
        score: returns the scores of some items, given these and their <y, a_i>.
        excluded: int, items that are left out.
        n: at most MAX_LIST.
    """
    raised = walk * WALK_SLACK
    first = table.longest[~np.isin(table.longest, excluded)]
    of_first = table.times(low, first)
    place = np.argsort(-(raised[first] + of_first))[: 2 * n]
    ids = first[place]
    scores = score(ids, of_first[place])
    if len(ids) < n or not (least := _nth_largest(scores, n)) > 0:
        return None
    bounds, length = np.empty_like(walk), np.float32(np.linalg.norm(low.astype(np.float64)) * (1 + ROUNDING))
    padded = np.zeros(table.codes.shape[1], dtype=np.float32)
    padded[: len(low)] = low
    _bound_scores(table.codes, table.scales, table.lengths, table.errors, raised, padded, length, least, bounds)
    bounds[ids], bounds[excluded] = -np.inf, -np.inf
    left = np.flatnonzero(bounds >= least).astype(np.int32)
    of_left = table.times(low, left)
    bound = raised[left] + of_left
    order = np.argsort(-bound)[: np.count_nonzero(bound >= least)]
    for start in range(0, len(order), ITEMS_PER_STEP):
        some = order[start : start + ITEMS_PER_STEP]
        if bound[some[0]] < least:
            break
        ids, scores = np.append(ids, left[some]), np.append(scores, score(left[some], of_left[some]))
        least = _nth_largest(scores, n)
    best = np.lexsort((ids, -scores))[:n]
    return ids[best], scores[best]


def _nth_largest(scores: np.ndarray, n: int) -> np.float32:
    return np.partition(scores, len(scores) - n)[len(scores) - n]


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})
def _bound_scores(codes, scales, lengths, errors, walk, low, length, least, bounds):
    """Fill the upper bounds of all scores; those below `least` are by the lengths alone."""
    for item in range(len(walk)):
        bound = walk[item] + length * lengths[item]
        if bound >= least:
            total, code = np.float32(0), codes[item]
            for column in range(len(low)):
                total += low[column] * np.float32(code[column])
            bound = walk[item] + scales[item] * total + length * errors[item]
        bounds[item] = bound


@njit(nogil=True, cache=True, fastmath={"contract"})
def _row_products(rows, low, items, out):
    """out = rows[items] low, four rows side by side, since each sum waits for its last term."""
    for start in range(0, len(items), 4):
        last = len(items) - 1
        a, b = rows[items[start]], rows[items[min(start + 1, last)]]
        c, d = rows[items[min(start + 2, last)]], rows[items[min(start + 3, last)]]
        p = q = r = s = np.float32(0)
        for column in range(len(low)):
            value = low[column]
            p, q = p + value * a[column], q + value * b[column]
            r, s = r + value * c[column], s + value * d[column]
        out[start], out[min(start + 1, last)] = p, q
        out[min(start + 2, last)], out[min(start + 3, last)] = r, s


class SecondWalk:
    """Products of some columns of S = W'W with a vector z; where these have few edges, W z is computed for their users.

    Attributes:
        vector: float32 (items,), z.
    """

    def __init__(self, of_users: SparseTable, of_items: SparseTable, vector: np.ndarray) -> None:
        self._tables, self.vector = (of_users, of_items), vector
        self._at_users, self._is_whole = np.full(len(of_users.indptr) - 1, np.nan, dtype=np.float32), False

    def entries(self, items: np.ndarray) -> np.ndarray:
        """(S z)_i of some items, float32, with the bits of `gram_times_vector`."""
        out, (of_users, of_items) = np.empty(len(items), dtype=np.float32), self._tables
        edges = int((of_items.indptr[items + 1] - of_items.indptr[items]).sum())
        if not self._is_whole and FEW_USERS * edges > len(self._at_users):
            self._at_users, self._is_whole = times_vector(of_users, of_items, self.vector), True
        _gram_entries(of_users, of_items, self.vector, items.astype(np.int32), self._at_users, out)
        return out


@njit(nogil=True, cache=True, fastmath={"contract"})
def _gram_entries(of_users, of_items, vector, items, at_users, out):
    """Fill (S z)_i for some items; `at_users` keeps W z of the users so far, NaN of others."""
    for place in range(len(items)):
        total = np.float32(0)
        for at in range(of_items.indptr[items[place]], of_items.indptr[items[place] + 1]):
            user = np.int64(of_items.indices[at])
            if np.isnan(at_users[user]):
                walked = np.float32(0)
                for entry in range(of_users.indptr[user], of_users.indptr[user + 1]):
                    walked += element(of_users.values, entry) * element(vector, np.int64(of_users.indices[entry]))
                at_users[user] = walked
            total += of_items.values[at] * at_users[user]
        out[place] = total
