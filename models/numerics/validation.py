"""What models take: users x items matrices of counts, checked before anything is computed from them."""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

MIN_IDS, MIN_ID_SHARE = 10, 0.9  # different numbers in a column of ids, and the share of entries above 0
ENTRIES_PER_CHUNK = 1 << 23  # entries that are counted together, 64 MB


def check_interactions(interactions: csr_matrix) -> csr_matrix:
    """The matrix itself, if a model can be fitted on it.

    Raises:
        TypeError, ValueError: as `check_matrix`; or it has no edge.
    """
    check_matrix(interactions, "interactions")
    if interactions.nnz == 0:
        raise ValueError(f"the {interactions.shape[0]} x {interactions.shape[1]} matrix of interactions has no edge")
    refuse_id_pairs(interactions)
    return interactions


def refuse_id_pairs(matrix: csr_matrix) -> None:
    """Refuse rows of (user, item) pairs where a users x items matrix belongs: two or three columns of large numbers.

    Raises:
        ValueError: almost all entries are whole numbers above 0, and both columns have many different ones.
    """
    if matrix.shape[1] not in (2, 3) or matrix.nnz < MIN_ID_SHARE * matrix.shape[0] * 2 or matrix.shape[0] < MIN_IDS:
        return
    pairs = matrix[:, :2].toarray()
    different = min(len(np.unique(column)) for column in pairs.T)
    if different >= MIN_IDS and (pairs == np.round(pairs)).all() and (pairs > 0).mean() >= MIN_ID_SHARE:
        raise ValueError(
            f"interactions: {matrix.shape[0]} rows of {matrix.shape[1]} large numbers look like pairs of ids, and a "
            f"model would take them for counts of {matrix.shape[1]} items; give oneclass.Interactions(list of (user, "
            "item) tuples), or a frame with the columns user_id and item_id"
        )


def check_matrix(matrix: Any, name: str) -> None:
    """Refuse anything but a users x items matrix of counts as the models take it.

    Raises:
        TypeError: it is not of scipy's type `csr_matrix`, or its values are not real numbers.
        ValueError: columns of a row are not sorted or come twice, or a count is not positive and finite; the first such
            entry is named.
    """
    if not isinstance(matrix, csr_matrix):
        narrow = getattr(matrix, "ndim", 0) == 2 and matrix.shape[1] in (2, 3)  # as rows of ids are
        advice = "" if narrow else f"csr_matrix({name}), or "
        raise TypeError(
            f"{name}: a {type(matrix).__name__} where a scipy.sparse.csr_matrix of users x items belongs; give "
            f"{advice}oneclass.Interactions of pairs of ids"
        )
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f"{name}: its values are of type {matrix.dtype}; give counts, such as {name}.astype('float32')")
    if not matrix.has_canonical_format:
        raise ValueError(
            f"{name}: columns of a row are not sorted, or a column comes twice in a row; call {name}.sum_duplicates()"
        )
    counts = matrix.data
    if len(counts) and not (counts.min() > 0 and counts.max() < np.inf):  # a NaN is the least and the largest
        bad = ~(np.isfinite(counts) & (counts > 0))
        entry = int(np.argmax(bad))
        row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
        raise ValueError(
            f"{name}: user {row} (row), item {matrix.indices[entry]}: the count {counts[entry]} is not a "
            "positive finite number; leave out what is not a like, and call eliminate_zeros()"
        )


def count_item_degrees(matrix: csr_matrix) -> np.ndarray:
    """int64 (items,), how many entries each column has; some entries at a time, for a count in 64 bits copies them."""
    pieces = np.split(matrix.indices, range(ENTRIES_PER_CHUNK, matrix.nnz, ENTRIES_PER_CHUNK))
    counts = (np.bincount(piece, minlength=matrix.shape[1]) for piece in pieces)
    return sum(counts, np.zeros(matrix.shape[1], dtype=np.int64))


def row_sums(indptr: np.ndarray, of_entries: np.ndarray) -> np.ndarray:
    """Sums of the entries of each row of a CSR matrix, float64 (rows,)."""
    ends = np.zeros(len(of_entries) + 1)
    np.cumsum(of_entries, out=ends[1:])
    at = ends[indptr]
    return at[1:] - at[:-1]
