"""What users considered and did not like, beside their likes: pairs that are fitted to a value between 0 and 1.

A rating of 1 to 3 stars is no like, and yet the user chose the item among all others. So S of `models.wmf.model` has these
pairs too, and a target p: 1 for a like, `considered_weight` for an item that was considered and not liked.
"""

import numpy as np
from scipy.sparse import csr_matrix


def beside(
    interactions: csr_matrix, considered: csr_matrix | None, weight: float
) -> tuple[csr_matrix, np.ndarray | None]:
    """The pairs of S, and their targets.

    Args:
        interactions: (users, items) CSR, sorted columns, the likes.
        considered: of that shape, sorted columns, none of them a like; None where the log does not tell.
        weight: p of what was considered.

    Returns:
        (users, items) CSR with sorted columns, whose values are the targets, and these, float64 (pairs,); or the likes
        themselves and None, where nothing is beside them.

    Raises:
        ValueError: the shapes differ, or an item was liked and not liked by one user.
    """
    if not weight or considered is None or not considered.nnz:
        return interactions, None
    if considered.shape != interactions.shape:
        raise ValueError(f"considered: the shape {considered.shape} beside likes of the shape {interactions.shape}")
    likes, others = (
        csr_matrix((np.full(one.nnz, value), one.indices, one.indptr), shape=one.shape)
        for one, value in ((interactions, 1.0), (considered, weight))
    )
    both = likes + others
    if both.nnz < likes.nnz + others.nnz:
        raise ValueError(f"considered: {likes.nnz + others.nnz - both.nnz} pairs are likes too; leave them out of one")
    both.sort_indices()
    return both, both.data
