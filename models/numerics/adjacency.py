"""Bipartite graphs as kernels take them: the neighbours of each vertex, where each list begins, parts of the lists, and
what is found in them.

Partitions of rows have about equal loads: a row's number of entries, plus a cost of the row itself. They depend on the
rows alone, so sums over parts, added in order, do not depend on the threads.
"""

from collections.abc import Iterator

import numpy as np
from numba import njit
from numpy.typing import ArrayLike
from scipy.sparse import csc_matrix, csr_matrix

Adjacency = tuple[np.ndarray, np.ndarray]  # (starts int64 (vertices + 1,), neighbours int32 (edges,))


def as_read_only(array: ArrayLike, dtype: type) -> np.ndarray:
    """A C-ordered read-only view, or a converted copy, so that a kernel is compiled for one kind of argument only."""
    view = np.ascontiguousarray(np.asarray(array), dtype=dtype).view()
    view.flags.writeable = False
    return view


def copy_pattern(matrix: csr_matrix | csc_matrix) -> Adjacency:
    """The pattern of a matrix by rows (CSR) or columns (CSC), copied."""
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


def transpose(starts: np.ndarray, neighbours: np.ndarray, count: int) -> Adjacency:
    """The same edges, listed by neighbour, each list ascending; `count` is the number of neighbours."""
    values = np.empty(len(neighbours), dtype=np.bool_)  # are not read
    return copy_pattern(csr_matrix((values, neighbours, starts), shape=(len(starts) - 1, count)).tocsc())


@njit(cache=True, nogil=True)
def put_edges(free, place, vertices, neighbours, values, found, found_values):
    """Put a batch of edges with their values into the lists of their vertices.

    Args:
        free: int64 (lists,), the next free place of each list in `found` and `found_values`; moved on.
        place: int32 (vertices,), the list of each vertex, -1 for one that has none: its edges are left out.
    """
    for edge in range(len(vertices)):
        own = place[vertices[edge]]
        if own >= 0:
            at = free[own]
            found[at] = neighbours[edge]
            found_values[at] = values[edge]
            free[own] = at + 1


@njit(cache=True, nogil=True)
def first_above(ascending, value):
    """The first place of an ascending array whose number exceeds `value`; the array's length if there is none."""
    low, high = np.int64(0), np.int64(len(ascending))
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, nogil=True)
def contains(ascending, value):
    """Whether the value is in an ascending array."""
    place = first_above(ascending, value) - 1
    return place >= 0 and ascending[place] == value


@njit(cache=True, nogil=True)
def nth_smallest(values, n):
    """Return the value at place n, from 0, of the sorted values; none may be NaN.

    A quickselect (Hoare 1961). np.partition takes eight seconds to compile, for its messages of errors and sorting.
    """
    left, first, last = values.copy(), 0, len(values) - 1
    while first < last:
        pivot, low, high = left[(first + last) // 2], first, last
        while low <= high:
            while left[low] < pivot:
                low += 1
            while left[high] > pivot:
                high -= 1
            if low <= high:
                left[low], left[high] = left[high], left[low]
                low, high = low + 1, high - 1
        # Places from high + 1 to low - 1 have the pivot.
        first, last = (low if n > high else first), (high if n < low else last)
    return left[n]


@njit(cache=True, nogil=True)
def find_largest(values, count):
    """Return the places of the `count` largest values, int64, ascending; of equal values the first are taken.

    No value may be NaN.
    """
    if count >= len(values):
        return np.arange(len(values))
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    least, room = nth_smallest(values, len(values) - count), count
    for value in values:
        room -= value > least
    places, at = np.empty(count, dtype=np.int64), 0
    for place in range(len(values)):
        if values[place] > least or (values[place] == least and room > 0):
            room -= values[place] == least
            places[at] = place
            at += 1
    return places


def partition_rows(starts: np.ndarray, count: int, row_cost: int = 0) -> np.ndarray:
    """Partition rows into `count` parts; with few rows, some parts are empty.

    Args:
        starts: (rows + 1,), where the entries of each row begin, or the load of the rows before it.
        row_cost: the cost of a row beside its entries, in entries.

    Returns:
        Bounds int64 (count + 1,), from 0 to the number of rows.
    """
    load = starts + np.arange(len(starts)) * row_cost
    bounds = np.searchsorted(load, np.linspace(0, load[-1], count + 1))
    bounds[0], bounds[-1] = 0, len(load) - 1
    return bounds


def partition_shards(starts: np.ndarray, count: int = 64) -> np.ndarray:
    """Return bounds int64 (shards + 1,) of at most `count` nonempty parts; a row costs as much as eight entries."""
    if len(starts) <= 2:  # folding in one user, update by update
        return np.arange(len(starts))
    return np.unique(partition_rows(starts, count, 8))


def partition_evenly(rows: int, count: int) -> np.ndarray:
    """Return bounds int64 (count + 1,) of `count` parts with about equal numbers of rows."""
    return np.linspace(0, rows, count + 1).astype(np.int64)


def partition_by_budget(sizes: np.ndarray, budget: int) -> Iterator[slice]:
    """Partition rows into parts whose sizes sum to at most `budget`; a larger row is a part of its own."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + budget, side="right")))
        yield slice(start, stop)
        start = stop
