"""Unit vectors of items, whose products are similarities."""

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.numerics.random_numbers import normals, purpose

PROJECTED_WIDTH = 256


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Scale rows to length 1, float32; a row of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, where=lengths > 0, out=np.zeros(vectors.shape, np.float32), casting="unsafe")


def project_items(interactions: csr_matrix, *, seed: int = 0) -> np.ndarray:
    """Represent items by random projections of their centred columns: the products are about the correlations of likes.

    v_i = R' (x_i - m_i) / |R' (x_i - m_i)| with R (users, PROJECTED_WIDTH) of standard normals and m_i the share of
    users who like i. Centred, two items are not alike because both are popular. The cosine of two projections has the
    standard deviation (1 - cos^2) / sqrt(PROJECTED_WIDTH) around that of the columns (Johnson and Lindenstrauss 1984),
    0.06 at most.

    Args:
        interactions: (users, items) CSR; a stored entry is a like, whatever its value.

    Returns:
        float32 (items, PROJECTED_WIDTH), rows of length 1; of zeros for an item that nobody likes.
    """
    ones, users = np.ones(interactions.nnz, np.float32), interactions.shape[0]
    pattern = csr_matrix((ones, interactions.indices, interactions.indptr), interactions.shape)
    directions = normals(seed, purpose("item projection"), users, PROJECTED_WIDTH)
    degrees = np.bincount(interactions.indices, minlength=interactions.shape[1])
    means = (degrees / users).astype(np.float32)
    return unit_rows(pattern.T @ directions - np.outer(means, directions.sum(axis=0, dtype=np.float64)))
