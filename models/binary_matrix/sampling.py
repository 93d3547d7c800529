"""Entries of a binary matrix, ones and zeros, drawn by the three strategies of section 7 of the poster.

S-Uniform   p(i, j) = 1 / (L M)
S-Balanced  p(i, j) = 1 / (2 n_x), where n_x is the number of entries equal to x_ij
S-Biased    p(i, j) = r_i c_j / (2 Z_x), where r_i and c_j count the zeros in the row and column of a one, or the
            ones in those of a zero, and Z_x is the sum of r_i c_j over the entries equal to x_ij
"""

from typing import Literal, NamedTuple

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.numerics.adjacency import contains, copy_pattern, first_above
from oneclass.models.numerics.random_numbers import below, purpose, stream, uniform

Strategy = Literal["uniform", "balanced", "biased"]
STRATEGIES: tuple[Strategy, ...] = ("uniform", "balanced", "biased")
UNIFORM, BALANCED, BIASED = range(3)
Arrays = tuple[np.ndarray, ...]
PURPOSE = purpose("binary matrix entries")
MIN_ACCEPTANCE = 0.01  # S-Biased is refused if less than this share of the entries that it proposes as zeros are zeros


class EntrySampler(NamedTuple):
    """Draws entries, with the probability of each.

    Attributes:
        strategy: place in `STRATEGIES`.
        indptr, indices: CSR of the ones, int64 and int32.
        rows: int32 (ones,), the row of every one.
        zeros_before: int64 (L + 1,), the number of zeros in the rows above.
        ones_scale: float64 (ones,), the running sum of r_i c_j over the ones (S-Biased only).
        share_of_ones: the probability that a drawn entry is a one (S-Balanced and S-Biased).
        scales: float64 (2,), p(i, j) of a zero and of a one; under S-Biased without the factor r_i c_j.
        row_ones, column_ones: int64 (L,) and (M,), the number of ones in each row and column.
        row_p, column_p: float64 (L,) and (M,), the probability that a drawn entry lies in the row (column).
    """

    strategy: int
    indptr: np.ndarray
    indices: np.ndarray
    rows: np.ndarray
    zeros_before: np.ndarray
    ones_scale: np.ndarray
    share_of_ones: float
    scales: np.ndarray
    row_ones: np.ndarray
    column_ones: np.ndarray
    row_p: np.ndarray
    column_p: np.ndarray

    @classmethod
    def of(cls, matrix: csr_matrix, strategy: Strategy) -> "EntrySampler":
        """The sampler of a matrix whose stored entries are its ones.

        Raises:
            ValueError: S-Biased cannot draw a one or a zero of this matrix, or only after very many tries.
        """
        L, M = matrix.shape
        indptr, indices = copy_pattern(matrix)
        row_ones, column_ones = np.diff(indptr), np.bincount(indices, minlength=M)
        rows = np.repeat(np.arange(L, dtype=np.int32), row_ones)
        share = 0.5 if L * M > len(indices) else 1.0
        if strategy == "biased":
            running, scales, row_p, column_p = _prepare_biased_draws(rows, indices, row_ones, column_ones)
        else:
            running, (scales, row_p, column_p) = np.zeros(0), _margins(strategy, row_ones, column_ones, share)
        return cls(
            strategy=STRATEGIES.index(strategy),
            indptr=indptr,
            indices=indices,
            rows=rows,
            zeros_before=np.concatenate([[0], np.cumsum(M - row_ones)]),
            ones_scale=running,
            share_of_ones=share,
            scales=scales,
            row_ones=row_ones,
            column_ones=column_ones,
            row_p=row_p,
            column_p=column_p,
        )

    def draw(self, seed: int, batch: int, size: int) -> tuple[np.ndarray, ...]:
        """Draw independent entries, with their scaling constants.

        Entry number s of a batch is drawn from the stream of unit s, iteration `batch`.

        Returns:
            (rows, columns, ones, weights): int32, int32 and bool (size,), and the constants c_ij, float32
            (3, size): for the row, p(i)/p(i,j), for the column, p(j)/p(i,j), and for the bias z, 1/p(i,j).
        """
        rows, columns = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
        ones, weights = np.empty(size, dtype=bool), np.empty((3, size), dtype=np.float32)
        _draw_batch(self, seed, batch, rows, columns, ones, weights)
        return rows, columns, ones, weights


def _margins(strategy: Strategy, row_ones: np.ndarray, column_ones: np.ndarray, share_of_ones: float) -> Arrays:
    """p(i, j) of a zero and of a one, p(i) and p(j) under S-Uniform and S-Balanced."""
    L, M, ones = len(row_ones), len(column_ones), int(row_ones.sum())
    if strategy == "uniform":
        return np.full(2, 1 / (L * M)), np.full(L, 1 / L), np.full(M, 1 / M)
    scales = np.array([(1 - share_of_ones) / max(L * M - ones, 1), share_of_ones / ones])
    row_p = (M - row_ones) * scales[0] + row_ones * scales[1]
    return scales, row_p, (L - column_ones) * scales[0] + column_ones * scales[1]


def _prepare_biased_draws(
    rows: np.ndarray, columns: np.ndarray, row_ones: np.ndarray, column_ones: np.ndarray
) -> Arrays:
    """Running sum of r_i c_j over the ones, 1 / (2 Z_0) and 1 / (2 Z_1), p(i) and p(j) under S-Biased."""
    L, M, ones = len(row_ones), len(column_ones), len(rows)
    running = np.cumsum((M - row_ones[rows]) * (L - column_ones[columns]).astype(np.float64))
    proposals = float(ones) * ones  # sum of r_i c_j over all entries, the ones among them
    zeros = proposals - (row_ones[rows] * column_ones[columns].astype(np.float64)).sum()
    if running[-1] == 0 or zeros < MIN_ACCEPTANCE * proposals:
        raise ValueError("sampling = biased can hardly draw a one or a zero of this matrix; use 'balanced'")
    scales, margins = np.array([0.5 / zeros, 0.5 / running[-1]]), []
    for own, own_ones, other_of_ones, own_size, other_size in (
        (rows, row_ones, column_ones[columns], L, M),
        (columns, column_ones, row_ones[rows], M, L),
    ):
        beside = np.bincount(own, weights=other_of_ones, minlength=own_size)  # c_j over the row's ones
        zeros_beside = own_ones * float(own_size) - beside
        of_ones = scales[1] * (other_size - own_ones) * zeros_beside
        margins.append(of_ones + scales[0] * own_ones * (ones - beside))
    return running, scales, *margins


@njit(cache=True, nogil=True)
def _select_zero(indices, start, end, rank):
    """The column of a row's zero number `rank`; the ones before it are those with indices[p] - p <= rank."""
    low, high = 0, end - start
    while low < high:
        middle = (low + high) // 2
        if indices[start + middle] - middle <= rank:
            low = middle + 1
        else:
            high = middle
    return rank + low


@njit(cache=True, nogil=True)
def _propose_entry(edge_rows, indices, key, draw):
    """The row of one edge and the column of another."""
    edges = len(indices)
    return np.int64(edge_rows[below(key, draw, edges)]), np.int64(indices[below(key, draw + 1, edges)])


@njit(cache=True, parallel=True, nogil=True)
def _draw_batch(sampler, seed, batch, rows, columns, ones, weights):
    """Fill the arrays with a batch of entries, drawn by an `EntrySampler`."""
    for s in prange(len(rows)):
        # numba types the loop's index as int64 and runs it as uint64: as it is, it compiles what it calls for both
        _draw_entry(sampler, stream(seed, PURPOSE, batch, s), np.int64(s), rows, columns, ones, weights)


@njit(cache=True, nogil=True)
def _draw_entry(sampler, key, s, rows, columns, ones, weights):
    """Fill the arrays at place s with the entry of a stream."""
    strategy, share_of_ones, scales = sampler.strategy, sampler.share_of_ones, sampler.scales
    indptr, indices, edge_rows = sampler.indptr, sampler.indices, sampler.rows
    zeros_before, ones_scale = sampler.zeros_before, sampler.ones_scale
    row_ones, column_ones, row_p, column_p = sampler.row_ones, sampler.column_ones, sampler.row_p, sampler.column_p
    L, M, edges = len(row_ones), len(column_ones), len(indices)
    one = uniform(key, 0) < share_of_ones
    row, column = 0, 0
    if strategy == UNIFORM:
        row, column = below(key, 1, L), below(key, 2, M)
        one = contains(indices[indptr[row] : indptr[row + 1]], column)
    elif one:
        edge = below(key, 1, edges)
        if strategy == BIASED:
            place = uniform(key, 1) * ones_scale[-1]
            edge = min(first_above(ones_scale, place), edges - 1)
        row, column = np.int64(edge_rows[edge]), np.int64(indices[edge])
    elif strategy == BALANCED:
        rank = np.int64(uniform(key, 1) * zeros_before[-1])
        row = first_above(zeros_before, rank) - 1
        column = _select_zero(indices, indptr[row], indptr[row + 1], rank - zeros_before[row])
    else:  # take the row of one edge and the column of another, until their entry is a zero
        draw = 1
        row, column = _propose_entry(edge_rows, indices, key, draw)
        while contains(indices[indptr[row] : indptr[row + 1]], column):
            draw += 2
            row, column = _propose_entry(edge_rows, indices, key, draw)
    p = scales[1] if one else scales[0]
    if strategy == BIASED:
        r, c = row_ones[row], column_ones[column]
        p *= np.float64(M - r) * (L - c) if one else np.float64(r) * c
    rows[s], columns[s], ones[s] = row, column, one
    weights[0, s], weights[1, s], weights[2, s] = row_p[row] / p, column_p[column] / p, 1 / p
