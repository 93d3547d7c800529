"""A test whether the order within users' lines is informative: are the last items similar to those shortly before them?

For a user with n >= 10 edges in their order, the last tenth is compared with the two halves of the rest:

    D = mean cosine(last tenth, later half) - mean cosine(last tenth, earlier half)

where the cosine of two items is that of their columns of the matrix. If a user's order is as good as shuffled, D is
0 in expectation, whatever the items are; where taste, fashion or place move along the line, it is above 0. The user's
own edges add to every cosine alike, and need not be taken out.
"""

import numpy as np
from scipy.sparse import csr_matrix, diags

MIN_HISTORY = 10  # edges of an eligible user
MIN_USERS = 30  # with fewer eligible users there is no test
MAX_USERS = 2000  # of more eligible users, this many are sampled, spread evenly over all


def measure_drift(edges: csr_matrix, positions: np.ndarray) -> tuple[float, int]:
    """Measure the mean of D in its standard errors; 0 with too few users.

    Args:
        edges: (users, items) CSR; only its pattern is read.
        positions: (edges,) in the order of the matrix's entries, ascending along each user's line.

    Returns:
        z, and the number of users.
    """
    longs = np.flatnonzero(np.diff(edges.indptr) >= MIN_HISTORY)
    chosen = longs[np.arange(min(MAX_USERS, len(longs))) * len(longs) // max(1, min(MAX_USERS, len(longs)))]
    if len(chosen) < MIN_USERS:
        return 0.0, len(chosen)
    columns = _unit_columns(edges)
    drifts = np.empty(len(chosen))
    for number, user in enumerate(chosen):
        own = slice(edges.indptr[user], edges.indptr[user + 1])
        drifts[number] = _user_drift(columns[edges.indices[own][np.argsort(positions[own], kind="stable")]])
    error = drifts.std(ddof=1) / np.sqrt(len(drifts))
    return float(drifts.mean() / error) if error > 0 else 0.0, len(chosen)


def _unit_columns(edges: csr_matrix) -> csr_matrix:
    """(items, users), each row of length 1."""
    pattern = csr_matrix((np.ones(edges.nnz), edges.indices, edges.indptr), shape=edges.shape)
    lengths = np.sqrt(np.bincount(edges.indices, minlength=edges.shape[1]))
    return (diags(1 / np.maximum(lengths, 1)) @ pattern.T).tocsr()


def _user_drift(line: csr_matrix) -> float:
    """Return D of one line, (items, users) in its order."""
    last = max(1, line.shape[0] // 10)
    half = (line.shape[0] - last) // 2
    parts = line[-last:], line[-last - half : -last], line[:half]
    end, later, earlier = (np.asarray(part.sum(axis=0)).ravel() for part in parts)  # whose products sum the cosines
    return float(end @ (later - earlier)) / (last * half)
