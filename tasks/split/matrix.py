"""Edges of a relation as a matrix, and rows that Python drew as a relation."""

from dataclasses import replace

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass import sql
from oneclass.models.numerics.adjacency import put_edges
from oneclass.models.numerics.sequential_histories import with_recency_ranks
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.stores.warehouse import select

ROWS_PER_BATCH = 1 << 20  # edges that are taken from DuckDB at a time


def load_csr(
    connection: duckdb.DuckDBPyConnection,
    edges: str,
    columns: int,
    users: np.ndarray | None = None,
    *,
    value: str = "event_count",
) -> tuple[np.ndarray, csr_matrix]:
    """(users, CSR) of the edges of a relation; row i belongs to the i-th of `users`, by default all it names.

    Edges go to their places batch by batch, so that nothing is held but the matrix.

    Args:
        value: what the entries hold, an INTEGER that is not null, below 2^24.
    """
    having, degrees = (column.to_numpy() for column in select(connection, "split/degrees", {"edges": edges}))
    users = having if users is None else users
    place = np.full(int(max(users.max(initial=-1), having.max(initial=-1))) + 1, -1, dtype=np.int32)
    place[users] = np.arange(len(users), dtype=np.int32)
    starts = np.zeros(len(users) + 1, dtype=np.int64)
    wanted = place[having] >= 0
    starts[place[having[wanted]] + 1] = degrees[wanted]
    starts = np.cumsum(starts)
    items, counts = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.float32)
    free = starts[:-1].copy()
    connection.complete()
    batches = connection.sql(sql.statement("split/edges", edges=edges, value=value)).to_arrow_reader(ROWS_PER_BATCH)
    for batch in batches:
        put_edges(free, place, *(column.to_numpy() for column in batch.columns), items, counts)
    found = csr_matrix((counts, items, starts), shape=(len(users), columns))
    found.sort_indices()
    return users.astype(np.int32), found


def store_roles(
    connection: duckdb.DuckDBPyConnection, protocol: str, roles: str, columns: str = "user_index, item_index, role"
) -> None:
    """Fill the protocol's table, which is empty, from the relation of its roles."""
    connection.execute(sql.statement("split/keep", protocol=protocol, roles=roles, columns=columns))


def insert_table(connection: duckdb.DuckDBPyConnection, name: str, rows: pl.DataFrame) -> None:
    connection.register("incoming", rows)
    connection.execute(f"create or replace temp table {name} as select * from incoming")
    connection.unregister("incoming")


TRAINING_RELATION = {  # the relation of a protocol's training edges, while its split is made
    "strong_generalization": "roles where role = 'fit'",
    "leave_one_out": "leave_one_out_roles where role = 'train'",
    "next_events": "next_events_roles where role = 'train'",
    "given": "given_roles where role = 'train'",
    ALL_EDGES: "all_edges where true",
}
POSITION_COLUMN = {
    "next_events": "position"
}  # the column that says which line of the logs counts, where not the edge's first


def add_recency_ranks(connection: duckdb.DuckDBPyConnection, made: SplitMatrices) -> SplitMatrices:
    """The matrices with the places of the training edges, and of the histories of users never seen in training."""
    position = POSITION_COLUMN.get(made.protocol, "null")

    def places(relation: str, of: csr_matrix, users: np.ndarray) -> np.ndarray:
        """int32, in the order of the entries of the matrix of the relation's edges."""
        connection.execute(sql.statement("split/places", edges=relation, position=position))
        _, found = load_csr(connection, "placed_edges", of.shape[1], users, value="place")
        return found.data.astype(np.int32)

    parts = dict(made.parts)
    for name, part in made.parts.items():
        if part.rows is None:
            told = places(f"roles where part = '{name}' and role = 'fold_in'", part.histories, part.users)
            parts[name] = replace(part, histories=with_recency_ranks(part.histories, told))
    return replace(made, places=places(TRAINING_RELATION[made.protocol], made.train, made.users), parts=parts)
