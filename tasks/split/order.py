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
    connection: duckdb.DuckDBPyConnection, made: SplitMatrices, edges: str, **of_parts: str
) -> SplitMatrices:
    """The matrices with the places of the training edges, and of the histories of users never seen in training.

    Args:
        edges: the relation of the training edges: user_index, item_index, item_column.
        of_parts: by the part's name, that of its histories.
    """
    parts = {
        name: replace(
            made.parts[name],
            histories=ordered(
                made.parts[name].histories,
                _places(connection, of_part, made.parts[name].histories, made.parts[name].users),
            ),
        )
        for name, of_part in of_parts.items()
    }
    places = _places(connection, edges, made.train, made.users)
    return replace(made, places=places, parts={**made.parts, **parts})


def _places(connection: duckdb.DuckDBPyConnection, edges: str, of: csr_matrix, users: np.ndarray) -> np.ndarray:
    """int32, how many of the user's edges in the relation are newer, in the order of the entries of the matrix of them."""
    connection.execute(sql.statement("split/places", edges=edges))
    _, found = matrix(connection, "placed_edges", of.shape[1], users, value="place")
    return found.data.astype(np.int32)
