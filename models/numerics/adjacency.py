"""Bipartite graphs in the form that kernels take: the neighbours of each vertex, and where each list of them begins."""

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.numerics.partition import partition_rows

Adjacency = tuple[np.ndarray, np.ndarray]  # (starts int64 (vertices + 1,), neighbours int32 (edges,))

PARTS = 8  # runs of vertices that are transposed at once; each run counts the edges of every vertex of the other side


def copy_pattern(matrix: csr_matrix) -> Adjacency:
    """The pattern of a CSR matrix, copied."""
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


def group_edges(vertices: np.ndarray, neighbours: np.ndarray, count: int) -> Adjacency:
    """Group edges by their vertex; `count` is the number of vertices. A vertex's neighbours keep their order.

    Neighbours are written to their places directly: taking them in the order that `grouped` gives is 1.7 times as slow.
    """
    starts = np.zeros(count + 1, dtype=np.int64)
    return starts, _group_edges(vertices, neighbours, starts)


def transpose(starts: np.ndarray, neighbours: np.ndarray, count: int) -> Adjacency:
    """The same edges, listed by neighbour; `count` is the number of neighbours.

    This is a counting sort: each new list is ascending, whatever the order inside the old ones.
    """
    bounds = partition_rows(starts, PARTS)
    counts = _counts(starts, neighbours, count, bounds)
    turned = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
    places = turned[:-1] + np.cumsum(counts, axis=0) - counts
    return turned, _transpose(starts, neighbours, places, bounds)


@njit(cache=True, nogil=True)
def group_by_vertex(vertices, count):
    """Group entries by their vertex: (starts int64 (count + 1,), order int32 (entries,)).

    `order[starts[v] : starts[v + 1]]` are the entries of vertex v, ascending.

    Args:
        vertices: (entries,), the vertex of each entry.
        count: number of vertices.
    """
    starts = np.zeros(count + 2, dtype=np.int64)
    for vertex in vertices:
        starts[vertex + 2] += 1
    for vertex in range(count):
        starts[vertex + 2] += starts[vertex + 1]
    order = np.empty(len(vertices), dtype=np.int32)
    for entry in range(len(vertices)):
        vertex = vertices[entry]
        order[starts[vertex + 1]] = entry
        starts[vertex + 1] += 1
    return starts[:-1], order


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
def _group_edges(vertices, neighbours, starts):
    for vertex in vertices:
        starts[vertex + 1] += 1
    for vertex in range(len(starts) - 1):
        starts[vertex + 1] += starts[vertex]
    places, found = starts[:-1].copy(), np.empty(len(neighbours), dtype=np.int32)
    for edge in range(len(vertices)):
        found[places[vertices[edge]]] = neighbours[edge]
        places[vertices[edge]] += 1
    return found


@njit(cache=True, parallel=True, nogil=True)
def _counts(starts, neighbours, count, bounds):
    counts = np.zeros((len(bounds) - 1, count), dtype=np.int64)
    for part in prange(len(bounds) - 1):
        own = counts[part]
        for at in range(starts[bounds[part]], starts[bounds[part + 1]]):
            own[neighbours[at]] += 1
    return counts


@njit(cache=True, parallel=True, nogil=True)
def _transpose(starts, neighbours, places, bounds):
    vertices = np.empty(starts[-1], dtype=np.int32)
    for part in prange(len(bounds) - 1):
        next_place = places[part]
        for vertex in range(bounds[part], bounds[part + 1]):
            for at in range(starts[vertex], starts[vertex + 1]):
                vertices[next_place[neighbours[at]]] = vertex
                next_place[neighbours[at]] += 1
    return vertices
