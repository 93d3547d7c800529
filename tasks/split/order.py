"""The order in which each user came to like the items: recency ranks of the entries of a split's matrices.

All edges are sorted once. The entries of a split are ranked among themselves from their ranks among all edges of the
user, but for users of whom an edge is to be ranked by a later line than its first: their entries are sorted again.
"""

from dataclasses import replace

import duckdb
import numpy as np
from scipy.sparse import csr_matrix

from oneclass import sql
from oneclass.models.numerics.matmul import as_read_only
from oneclass.models.numerics.sequential_histories import select_ranks, with_recency_ranks
from oneclass.tasks.protocols import NEXT_EVENTS_VALIDATION
from oneclass.tasks.split.matrix import TRAINING_RELATION, load_csr
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.stores.warehouse import query


class EdgeOrder:
    """The recency rank of every curated edge among the edges of its user."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        # one row per edge, its item's column the item's index
        edges = "(select user_index, item_index, item_index as item_column from indexed.interactions)"
        items = query(connection, "select count(*) from indexed.items").item()
        self._connection = connection
        self._users, self._ranks = self._sort_edges(edges, items)

    def add_to(self, split: SplitMatrices) -> SplitMatrices:
        """Add recency ranks of the training edges, and of the histories of users not seen in training.

        The relations of the split must still exist.
        """
        parts = dict(split.parts)
        for name, part in split.parts.items():
            if part.rows is None:
                ranks = self._rank_entries(part.histories, part.users, split.items)
                parts[name] = replace(part, stored_histories=with_recency_ranks(part.histories, ranks))
        ranks = self._rank_entries(split.train, split.users, split.items)
        if split.protocol in ("next_events", NEXT_EVENTS_VALIDATION):
            self._rank_moved_edges(ranks, split)
        return replace(split, recency_ranks=ranks, parts=parts)

    def _rank_entries(self, histories: csr_matrix, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """int32, in the order of the entries."""
        rows = np.searchsorted(self._users, users)
        order = as_read_only(self._ranks.indptr, np.int64), self._ranks.indices, self._ranks.data
        entries = as_read_only(histories.indptr, np.int64), as_read_only(histories.indices, np.int32)
        return select_ranks(*order, rows, *entries, as_read_only(items, np.int32), self._ranks.shape[1])

    def _rank_moved_edges(self, ranks: np.ndarray, split: SplitMatrices) -> None:
        """Rank again, in place, the edges of users who have one that the cut gives a later line."""
        # one row per user
        moved = "select distinct user_index from edges_astride where position is not null"
        edges = f"{TRAINING_RELATION[split.protocol]} and user_index in ({moved})"
        users, ranked = self._sort_edges(edges, split.train.shape[1], position="position")
        ranks[np.repeat(np.isin(split.users, users), np.diff(split.train.indptr))] = ranked.data

    def _sort_edges(self, edges: str, columns: int, position: str = "null") -> tuple[np.ndarray, csr_matrix]:
        """Return the users of a relation of edges, and a matrix of the recency ranks of each user's edges."""
        self._connection.execute(sql.statement("split/places", edges=edges, position=position))
        users, placed = load_csr(self._connection, "placed_edges", columns, value="place")
        self._connection.execute("drop table placed_edges")
        return users, csr_matrix((placed.data.astype(np.int32), placed.indices, placed.indptr), shape=placed.shape)
