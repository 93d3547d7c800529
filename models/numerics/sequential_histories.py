"""Histories that tell in which order a user came to like the items, and weights by that order.

The last likes of a log may say more of what comes next than its first ones. An entry after which n others of its row came weighs
(1 + n)^-p, p being the setting `recency_exponent`; with p = 0 all weigh 1.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix


class SequentialHistories(csr_matrix):
    """(users, items) histories with the order of each row's entries. Rows and columns that are taken of them keep it.

    Attributes:
        places: int (entries,), in the order of `indices`: within a row the lowest is the newest. Nothing else of them
            counts, so that they need not be counted anew where entries are left out. None where an operation other
            than indexing made the matrix.
    """

    places: np.ndarray | None = None

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, SequentialHistories) and self.places is not None:
            found.places = csr_matrix((self.places, self.indices, self.indptr), shape=self.shape)[key].data
        return found


def with_recency_ranks(histories: csr_matrix, recency_ranks: np.ndarray | None) -> csr_matrix:
    """The histories, a view, with the places of their entries; as they are where `places` is None.

    Raises:
        ValueError: there is not one place for each entry.
    """
    if recency_ranks is None:
        return histories
    if len(recency_ranks) != histories.nnz:
        raise ValueError(f"{len(recency_ranks)} places but {histories.nnz} entries; give one place for each entry")
    parts = histories.data, histories.indices, histories.indptr
    found = SequentialHistories(parts, shape=histories.shape, copy=False)
    found.has_sorted_indices = histories.has_sorted_indices
    found.has_canonical_format = histories.has_canonical_format
    found.places = recency_ranks
    return found


def recency_weights(histories: csr_matrix, exponent: float) -> np.ndarray:
    """float32 (entries,), (1 + n)^-exponent, n being how many entries of the row are newer; of equal places the first
    entry is the newer.

    Raises:
        ValueError: the exponent is not 0, and the histories do not tell their order.
    """
    if exponent == 0:
        return np.ones(len(histories.indices), dtype=np.float32)
    if (places := getattr(histories, "places", None)) is None:
        raise ValueError(
            f"recency_exponent = {exponent:g} weighs likes by their order, which these histories do not tell: give "
            "models.numerics.sequential_histories.ordered(histories, places)"
        )
    lengths = np.diff(histories.indptr)
    newest_first = np.lexsort((places, np.repeat(np.arange(len(lengths)), lengths)))
    newer = np.empty(len(places), dtype=np.int64)
    newer[newest_first] = np.arange(len(places)) - np.repeat(histories.indptr[:-1].astype(np.int64), lengths)
    return ((1.0 + newer) ** -exponent).astype(np.float32)
