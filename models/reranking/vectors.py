"""Unit vectors of items, whose products are similarities."""

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.numerics.random_numbers import bits, purpose, stream
from oneclass.models.numerics.top_k import as_index_arrays

WORD_BITS = 64  # signs of a draw
PROJECTED_WIDTH = 4 * WORD_BITS


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Scale rows to length 1, float32; a row of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, where=lengths > 0, out=np.zeros(vectors.shape)).astype(np.float32)


def project_items(interactions: csr_matrix, *, seed: int = 0) -> np.ndarray:
    """Represent items by random projections of their centred columns: the products are about the correlations of likes.

    v_i = R' (x_i - m_i) / |R' (x_i - m_i)| with R (users, PROJECTED_WIDTH) of random signs (Achlioptas 2003) and m_i
    the share of users who like i. Centred, two items are not alike because both are popular. The product of two
    projections has a standard deviation of 1 / sqrt(PROJECTED_WIDTH), 0.06, around the correlation, and less where this
    is large.

    Args:
        interactions: (users, items) CSR; a stored entry is a like, whatever its value.

    Returns:
        float32 (items, PROJECTED_WIDTH), rows of length 1; of zeros for an item that nobody likes, or everybody.
    """
    users, items = interactions.shape
    sums, totals = np.zeros((items, PROJECTED_WIDTH), dtype=np.float32), np.zeros(PROJECTED_WIDTH)
    indptr, indices = as_index_arrays(interactions.indptr, interactions.indices)
    _add_signs(indptr, indices, seed, purpose("item projection"), sums, totals)
    degrees = np.bincount(indices, minlength=items)
    return unit_rows(np.where((degrees < users)[:, None], sums - np.outer(degrees / users, totals), 0))


@njit(cache=True, parallel=True, nogil=True)
def _add_signs(indptr, indices, seed, purpose, sums, totals):
    """Add each user's signs to the rows of the liked items, and to `totals`; whole numbers, exact in any order."""
    for word in prange(len(totals) // WORD_BITS):
        signs, first = np.empty(WORD_BITS, dtype=np.float32), word * WORD_BITS
        for user in range(len(indptr) - 1):
            drawn = bits(stream(seed, purpose, 0, user), word)
            for bit in range(WORD_BITS):
                signs[bit] = 1.0 if (drawn >> np.uint64(bit)) & np.uint64(1) else -1.0
                totals[first + bit] += signs[bit]
            for entry in range(indptr[user], indptr[user + 1]):
                row = sums[indices[entry], first : first + WORD_BITS]
                for bit in range(WORD_BITS):
                    row[bit] += signs[bit]
