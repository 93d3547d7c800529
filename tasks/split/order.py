"""The order of users' likes, kept with a split's matrices where a model reads it (`split.order`)."""

from dataclasses import replace

import duckdb
import numpy as np
from scipy.sparse import csr_matrix

import sql
from models.numerics.ordered_histories import ordered
from tasks.protocols import ALL_EDGES
from tasks.split.matrix import matrix
from tasks.stores.matrices import SplitMatrices

TRAINING = {  # the relation of a protocol's training edges, while its split is made
    "strong_generalization": "roles where role = 'fit'",
    "leave_one_out": "leave_one_out_roles where role = 'train'",
    "next_events": "next_events_roles where role = 'train'",
    "given": "given_roles where role = 'train'",
    ALL_EDGES: "all_edges where true",
}
POSITION = {"next_events": "position"}  # the column that says which line of the logs counts, where not the edge's first


def with_order(connection: duckdb.DuckDBPyConnection, made: SplitMatrices) -> SplitMatrices:
    """The matrices with the places of the training edges, and of the histories of users never seen in training."""
    position = POSITION.get(made.protocol, "null")

    def places(relation: str, of: csr_matrix, users: np.ndarray) -> np.ndarray:
        """int32, in the order of the entries of the matrix of the relation's edges."""
        connection.execute(sql.statement("split/places", edges=relation, position=position))
        _, found = matrix(connection, "placed_edges", of.shape[1], users, value="place")
        return found.data.astype(np.int32)

    parts = dict(made.parts)
    for name, part in made.parts.items():
        if part.rows is None:
            told = places(f"roles where part = '{name}' and role = 'fold_in'", part.histories, part.users)
            parts[name] = replace(part, histories=ordered(part.histories, told))
    return replace(made, places=places(TRAINING[made.protocol], made.train, made.users), parts=parts)
