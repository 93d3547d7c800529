"""Held-out edges of every user, chosen by a hash: independent of the order and the number of users."""

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.numerics.random_numbers import bits, purpose, stream

PURPOSE = purpose("held-out edges")


def choose_held_out_edges(
    edges: csr_matrix, counts: np.ndarray, seed: int, users: np.ndarray, items: np.ndarray
) -> np.ndarray:
    """Choose the edges to hold out.

    Args:
        edges: (users, items) CSR.
        counts: (users,) number of edges to hold out of each user, at most the user's degree.
        seed: the seed of the hash.
        users, items: non-negative integers, (users,) and (items,), which stand for the rows and columns in the hash.

    Returns:
        bool (edges,), in the order of the matrix's entries: for each user, the edges with the lowest hashes.
    """
    chosen = np.zeros(edges.nnz, dtype=np.bool_)
    names = users.astype(np.int64), items.astype(np.int64)
    indptr, indices = edges.indptr.astype(np.int64), edges.indices.astype(np.int32)
    _mark_held_out(indptr, indices, counts.astype(np.int64), seed, *names, chosen)
    return chosen


def split_matrix(matrix: csr_matrix, chosen: np.ndarray) -> tuple[csr_matrix, csr_matrix]:
    """Split a matrix into the entries that are not chosen and those that are, of the same shape."""
    parts = []
    for mask in (~chosen, chosen):
        indptr = np.concatenate([[0], np.cumsum(mask)])[matrix.indptr].astype(matrix.indptr.dtype)
        parts.append(csr_matrix((matrix.data[mask], matrix.indices[mask], indptr), shape=matrix.shape))
    return parts[0], parts[1]


@njit(cache=True, parallel=True, nogil=True)
def _mark_held_out(indptr, indices, counts, seed, users, items, chosen):
    for row in prange(len(counts)):
        start, end = indptr[row], indptr[row + 1]
        key = stream(seed, PURPOSE, 0, users[row])
        hashes = np.empty(end - start, dtype=np.uint64)
        for place in range(end - start):
            hashes[place] = bits(key, items[indices[start + place]])
        for place in np.argsort(hashes, kind="mergesort")[: counts[row]]:
            chosen[start + place] = True
