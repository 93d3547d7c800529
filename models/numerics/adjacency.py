"""Bipartite graphs in the form that kernels take: the neighbours of each vertex, and where each list of them begins."""

import numpy as np
from numba import njit
from scipy.sparse import csc_matrix, csr_matrix

Adjacency = tuple[np.ndarray, np.ndarray]  # (starts int64 (vertices + 1,), neighbours int32 (edges,))


def copy_pattern(matrix: csr_matrix | csc_matrix) -> Adjacency:
    """The pattern of a matrix by rows (CSR) or columns (CSC), copied."""
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


def transpose(starts: np.ndarray, neighbours: np.ndarray, count: int) -> Adjacency:
    """The same edges, listed by neighbour, each list ascending; `count` is the number of neighbours."""
    values = np.empty(len(neighbours), dtype=np.bool_)  # are not read
    return copy_pattern(csr_matrix((values, neighbours, starts), shape=(len(starts) - 1, count)).tocsc())


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
