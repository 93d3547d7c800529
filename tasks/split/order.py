"""The order of users' likes, kept with a split's matrices where a model reads it (`split.order`)."""

from dataclasses import replace

import duckdb
import numpy as np
from scipy.sparse import csr_matrix

import sql
from models.numerics.ordered_histories import ordered
from tasks.split.matrix import matrix
from tasks.stores.matrices import SplitMatrices


def with_order(
    connection: duckdb.DuckDBPyConnection, made: SplitMatrices, edges: str, *, position: str = "null", **of_parts: str
) -> SplitMatrices:
    """The matrices with the places of the training edges, and of the histories of users never seen in training.

    Args:
        edges: the relation of the training edges: user_index, item_index, item_column.
        position: a column of the relations, the place in the logs that counts where times are the same; where that is
            null, the edge's first line does.
        of_parts: by the part's name, the relation of its histories.
    """

    def places(relation: str, of: csr_matrix, users: np.ndarray) -> np.ndarray:
        """int32, in the order of the entries of the matrix of the relation's edges."""
        connection.execute(sql.statement("split/places", edges=relation, position=position))
        _, found = matrix(connection, "placed_edges", of.shape[1], users, value="place")
        return found.data.astype(np.int32)

    parts = dict(made.parts)
    for name, relation in of_parts.items():
        part = made.parts[name]
        parts[name] = replace(part, histories=ordered(part.histories, places(relation, part.histories, part.users)))
    return replace(made, places=places(edges, made.train, made.users), parts=parts)
