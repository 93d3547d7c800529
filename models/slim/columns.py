"""Batches of columns, and equal items.

Two items that exactly the same users like may swap their weights without changing the loss, which with l2 > 0 has one
minimum: there their weights are equal. So with v = m w for a group of m items, column j minimizes, over one item of
each group,

    |x_j - X v|^2 / 2 + sum l2 / (2 m) v^2 + l1 sum v    over v >= 0

where the other items of j's own group are one of m - 1. Of a log with thousands of items that one user likes, this is a
single number for each column in place of thousands.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numba import get_num_threads, njit
from scipy.sparse import csc_matrix, csr_matrix

from oneclass.models.numerics.adjacency import as_read_only
from oneclass.models.slim.kernels import count_candidates, solve_columns

BATCH_ENTRIES = 1 << 22  # candidates of a batch of columns: 32 MB
# A column is done when no step of the descent would move a weight by more than TOLERANCE.
TOLERANCE = 1e-5
MAX_SWEEPS = 1000  # passes over a column's active weights


class Gram(NamedTuple):
    """diag(factor) X' diag(w) X diag(factor) of the pairs of items that share a user; see
    `models.slim.kernels.fill_pairs`.

    Attributes:
        starts: int64 (items + 1,), where each row begins.
        columns, values: uint32 and float32. A row with as many elements as there are items is dense, in their order.
    """

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray


def solve_batches(
    gram: Gram, diagonal: np.ndarray, sizes: np.ndarray, chosen: Any
) -> Iterator[tuple[int, int, csc_matrix, int]]:
    """Solve all columns, a batch at a time; a column's bits depend only on its number and the Gram matrix.

    Args:
        diagonal, sizes: as in `models.slim.kernels.solve_columns`.
        chosen: the resolved `SLIMSettings`.

    Yields:
        (number of the batch, of how many, its columns of weights, how many of them MAX_SWEEPS ended).
    """
    bounds, penalties = np.zeros(len(sizes), dtype=np.int64), (np.float32(chosen.l1), np.float32(chosen.l2))
    count_candidates(gram, sizes, penalties[0], bounds)
    cuts = np.flatnonzero(np.diff(np.cumsum(bounds) // BATCH_ENTRIES)) + 1
    firsts, limits = [0, *cuts.tolist()], (np.float32(TOLERANCE), MAX_SWEEPS)
    for number, (first, some) in enumerate(zip(firsts, np.split(bounds, cuts), strict=True), 1):
        starts = np.concatenate([[0], np.cumsum(some)])
        rows, weights = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.float32)
        found, columns = np.zeros((len(some), 2), dtype=np.int64), (first, first + len(some))
        filled = starts, rows, weights, found
        solve_columns(*columns, gram, diagonal, sizes, penalties, limits, get_num_threads(), filled)
        lengths = np.stack([found[:, 0], some - found[:, 0]], axis=1)
        held = np.repeat(np.tile([True, False], len(some)), lengths.ravel())  # a byte for each candidate
        indptr = np.concatenate([[0], np.cumsum(found[:, 0])])
        solved = csc_matrix((weights[held], rows[held], indptr), shape=(len(sizes), len(some)))
        yield number, len(firsts), solved, int(found[:, 1].sum())


@dataclass(frozen=True)
class EqualItems:
    """The groups, in the order of their first items.

    Attributes:
        first: int64 (groups,), the first item of each group.
        group: int64 (items,), the group of each item.
        sizes: int64 (groups,), number of items of each group.
    """

    first: np.ndarray
    group: np.ndarray
    sizes: np.ndarray

    @classmethod
    def find(cls, interactions: csr_matrix) -> Self:
        """Group the items of a (users, items) matrix by the users of their entries."""
        starts, items = as_read_only(interactions.indptr, np.int64), as_read_only(interactions.indices, np.int32)
        labels = _label_columns(starts, items, interactions.shape[1])
        _, first, group, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(first)
        return cls(first[order], np.argsort(order)[group], sizes[order])

    def expand(self, weights: csr_matrix) -> csr_matrix:
        """Return the weights w, (items, items), from the v of the groups, which are overwritten."""
        if len(self.first) == len(self.group):
            return weights
        of_group = np.repeat(np.arange(len(self.first)), np.diff(weights.indptr))
        weights.data /= (self.sizes[of_group] - (of_group == weights.indices)).astype(np.float32)
        found = weights[self.group][:, self.group]
        found.sort_indices()
        rows = np.repeat(np.arange(len(self.group), dtype=np.int32), np.diff(found.indptr))
        of_others = found.indices != rows
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows[of_others], minlength=len(self.group)))])
        return csr_matrix((found.data[of_others], found.indices[of_others], starts), shape=found.shape)


@njit(nogil=True, cache=True)
def _label_columns(indptr, indices, columns):
    """int32 (columns,): equal numbers for columns with entries in the same rows.

    Each row splits every set of columns that were equal so far into those that it has and the others.
    """
    labels, count = np.zeros(columns, dtype=np.int32), 1
    last_row, label_here = np.full(1 + len(indices), -1, dtype=np.int32), np.empty(1 + len(indices), dtype=np.int32)
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            before = labels[indices[entry]]
            if last_row[before] != row:
                last_row[before], label_here[before] = row, count
                count += 1
            labels[indices[entry]] = label_here[before]
    return labels
