"""The entries of a minibatch that lie in some rows of the matrix.

All blocks draw the same entries, and each keeps its own: which row an entry is in needs no more than the numbers of ones
and zeros before the rows. A column of S-Biased needs any one of the whole matrix, so that it cannot be drawn here.
"""

from typing import NamedTuple

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from models.binary_matrix.sampling import PURPOSE, UNIFORM, EntrySampler, Strategy, draw_entry, margins
from models.numerics.adjacency import adjacency
from models.numerics.random_numbers import below, stream, uniform

AT_ONCE = 1 << 20  # entries that are looked at together


class Whole(NamedTuple):
    """What a block must know of the whole matrix.

    Attributes:
        rows: of the matrix.
        column_ones: int64 (M,), the number of ones in each column.
        first_row, first_one: the number of the block's first row, and of its first one.
    """

    rows: int
    column_ones: np.ndarray
    first_row: int
    first_one: int


def sampler_of_rows(matrix: csr_matrix, strategy: Strategy, whole: Whole) -> EntrySampler:
    """The sampler of a block's rows, which has the probabilities of the whole matrix; not for S-Biased."""
    M, ones = len(whole.column_ones), int(whole.column_ones.sum())
    indptr, indices = adjacency(matrix)
    row_ones = np.diff(indptr)
    zeros = whole.rows * M - ones
    before = whole.first_row * M - whole.first_one
    return EntrySampler(
        indptr=indptr,
        indices=indices,
        rows=np.repeat(np.arange(len(row_ones), dtype=np.int32), row_ones),
        zeros_before=before + np.concatenate([[0], np.cumsum(M - row_ones)]),
        ones_scale=np.zeros(0),
        row_ones=row_ones,
        column_ones=whole.column_ones,
        **margins(strategy, row_ones, whole.column_ones, (whole.rows, ones, zeros)),
        whole=np.array([whole.rows, ones, zeros]),
        first=np.array([whole.first_row, whole.first_one]),
    )


def draw_own(sampler: EntrySampler, seed: int, batch: int, size: int) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The entries of a batch of `size` that lie in the sampler's rows.

    Returns:
        Their numbers in the batch, int64, ascending; and what `EntrySampler.draw` gives of them, rows counted from the
        block's first.
    """
    found = []
    for first in range(0, size, AT_ONCE):
        own = np.empty(min(AT_ONCE, size - first), dtype=bool)
        _find(sampler, seed, batch, first, own)
        found.append(first + np.flatnonzero(own))
    numbers = np.concatenate(found)
    rows, columns = np.empty((2, len(numbers)), dtype=np.int32)
    ones, weights = np.empty(len(numbers), dtype=bool), np.empty((3, len(numbers)), dtype=np.float32)
    _draw_numbers(sampler, seed, batch, numbers, rows, columns, ones, weights)
    return numbers, (rows, columns, ones, weights)


@njit(cache=True, parallel=True, nogil=True)
def _find(sampler, seed, batch, first, own):
    L, edges, zeros = sampler.whole[0], sampler.whole[1], sampler.whole[2]
    first_row, first_edge = sampler.first[0], sampler.first[1]
    zeros_before, count = sampler.zeros_before, len(sampler.indices)
    for at in prange(len(own)):
        key = stream(seed, PURPOSE, batch, first + at)
        if sampler.strategy == UNIFORM:
            row = below(key, 1, L) - first_row
            own[at] = 0 <= row < len(zeros_before) - 1
        elif uniform(key, 0) < sampler.share_of_ones:
            edge = below(key, 1, edges) - first_edge
            own[at] = 0 <= edge < count
        else:
            rank = np.int64(uniform(key, 1) * zeros)
            own[at] = zeros_before[0] <= rank < zeros_before[-1]


@njit(cache=True, parallel=True, nogil=True)
def _draw_numbers(sampler, seed, batch, numbers, rows, columns, ones, weights):
    for at in prange(len(numbers)):
        draw_entry(sampler, stream(seed, PURPOSE, batch, numbers[at]), at, rows, columns, ones, weights)
