"""Groups of items that exactly the same users like.

Two such items may swap their weights without changing the loss, which with l2 > 0 has one minimum: there their weights
are equal. So with v = m w for a group of m items, column j minimizes, over one item of each group,

    |x_j - X v|^2 / 2 + sum l2 / (2 m) v^2 + l1 sum v    over v >= 0

where the other items of j's own group are one of m - 1. Of a log with thousands of items that one user likes, this is a
single number for each column in place of thousands.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix

from oneclass.models.numerics.matmul import as_read_only


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

    @classmethod
    def leave_apart(cls, items: int) -> Self:
        """Return groups of one item each."""
        return cls(np.arange(items), np.arange(items), np.ones(items, dtype=np.int64))

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
