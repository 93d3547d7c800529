"""Whether the order within users' lines means anything: do the items at a line's end resemble those shortly before it?

For a user with n >= 10 edges in their order, the last tenth is held against the two halves of the rest:

    D = mean cosine(last tenth, later half) - mean cosine(last tenth, earlier half)

where the cosine of two items is that of their columns of the matrix. If a user's order is as good as shuffled, D is
0 in expectation, whatever the items are; where taste, fashion or place move along the line, it is above 0. The user's own
edges add to every cosine alike, and need not be taken out.
"""

import numpy as np
from scipy.sparse import csr_matrix, diags

MIN_HISTORY = 10  # edges of a user that is looked at
MIN_USERS = 30  # such users, below which nothing is said
MAX_USERS = 2000  # such users, spread evenly over all, beyond which no more are looked at


def measure_drift(edges: csr_matrix, recency_ranks: np.ndarray) -> tuple[float, int]:
    """How far the mean of D is from 0, in its standard errors, and of how many users; 0 where they are too few.

    Args:
        edges: (users, items) CSR, the values of which are not looked at.
        places: (edges,) in the order of the matrix's entries, ascending along each user's line.
    """
    longs = np.flatnonzero(np.diff(edges.indptr) >= MIN_HISTORY)
    chosen = longs[np.arange(min(MAX_USERS, len(longs))) * len(longs) // max(1, min(MAX_USERS, len(longs)))]
    if len(chosen) < MIN_USERS:
        return 0.0, len(chosen)
    columns = _unit_columns(edges)
    found = np.empty(len(chosen))
    for at, user in enumerate(chosen):
        own = slice(edges.indptr[user], edges.indptr[user + 1])
        found[at] = _user_drift(columns[edges.indices[own][np.argsort(recency_ranks[own], kind="stable")]])
    error = found.std(ddof=1) / np.sqrt(len(found))
    return float(found.mean() / error) if error > 0 else 0.0, len(chosen)


def _unit_columns(edges: csr_matrix) -> csr_matrix:
    """(items, users), each row of length 1."""
    pattern = csr_matrix((np.ones(edges.nnz), edges.indices, edges.indptr), shape=edges.shape)
    lengths = np.sqrt(np.bincount(edges.indices, minlength=edges.shape[1]))
    return (diags(1 / np.maximum(lengths, 1)) @ pattern.T).tocsr()


def _user_drift(line: csr_matrix) -> float:
    """D of one line: (places, users), in its order."""
    last = max(1, line.shape[0] // 10)
    half = (line.shape[0] - last) // 2
    parts = line[-last:], line[-last - half : -last], line[:half]
    end, later, earlier = (np.asarray(part.sum(axis=0)).ravel() for part in parts)  # whose products sum the cosines
    return float(end @ (later - earlier)) / (last * half)
