"""Histories with the order in which a user liked the items, and weights by that order.

A user's latest likes may predict the next ones better than the earliest. An entry with n newer entries in its row has
the weight (1 + n)^-p, where p is the setting `recency_exponent`; with p = 0 all weights are 1.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix


class SequentialHistories(csr_matrix):
    """(users, items) histories with the order of each row's entries; indexing rows and columns keeps it.

    Attributes:
        recency_ranks: int (entries,), in the order of `indices`: within a row the lowest is the newest. Only their
            order matters, so dropping entries does not require new ranks. None if the matrix comes from an operation
            other than indexing.
    """

    recency_ranks: np.ndarray | None = None

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, SequentialHistories) and self.recency_ranks is not None:
            found.recency_ranks = csr_matrix((self.recency_ranks, self.indices, self.indptr), shape=self.shape)[
                key
            ].data
        return found


def with_recency_ranks(histories: csr_matrix, recency_ranks: np.ndarray | None) -> csr_matrix:
    """Return a view of the histories with the recency ranks of their entries, or `histories` itself if they are None.

    Raises:
        ValueError: the number of ranks differs from the number of entries.
    """
    if recency_ranks is None:
        return histories
    if len(recency_ranks) != histories.nnz:
        raise ValueError(
            f"{len(recency_ranks)} recency ranks but {histories.nnz} entries; give one rank for each entry"
        )
    parts = histories.data, histories.indices, histories.indptr
    found = SequentialHistories(parts, shape=histories.shape, copy=False)
    found.has_sorted_indices = histories.has_sorted_indices
    found.has_canonical_format = histories.has_canonical_format
    found.recency_ranks = recency_ranks
    return found


def recency_weights(histories: csr_matrix, exponent: float) -> np.ndarray:
    """Weight each entry by (1 + n)^-exponent, where n is the number of newer entries in its row.

    Of equal recency ranks the first entry is the newer.

    Returns:
        float32 (entries,).

    Raises:
        ValueError: the exponent is not 0, and the histories have no order.
    """
    if exponent == 0:
        return np.ones(len(histories.indices), dtype=np.float32)
    if (recency_ranks := getattr(histories, "recency_ranks", None)) is None:
        raise ValueError(
            f"recency_exponent = {exponent:g} weighs likes by their order, which these histories do not have: give "
            "oneclass.models.numerics.sequential_histories.with_recency_ranks(histories, recency_ranks)"
        )
    lengths = np.diff(histories.indptr)
    newest_first = np.lexsort((recency_ranks, np.repeat(np.arange(len(lengths)), lengths)))
    newer = np.empty(len(recency_ranks), dtype=np.int64)
    newer[newest_first] = np.arange(len(recency_ranks)) - np.repeat(histories.indptr[:-1].astype(np.int64), lengths)
    return ((1.0 + newer) ** -exponent).astype(np.float32)
