"""Edges of a relation as a matrix, and rows that Python drew as a relation."""

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

import sql
from models.numerics.adjacency import put
from tasks.stores.warehouse import select

BATCH = 1 << 20  # edges that are taken from DuckDB at a time


def matrix(
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
    batches = connection.sql(sql.statement("split/edges", edges=edges, value=value)).to_arrow_reader(BATCH)
    for batch in batches:
        put(free, place, *(column.to_numpy() for column in batch.columns), items, counts)
    found = csr_matrix((counts, items, starts), shape=(len(users), columns))
    found.sort_indices()
    return users.astype(np.int32), found


def keep(
    connection: duckdb.DuckDBPyConnection, protocol: str, roles: str, columns: str = "user_index, item_index, role"
) -> None:
    """Fill the protocol's table, which is empty, from the relation of its roles."""
    connection.execute(sql.statement("split/keep", protocol=protocol, roles=roles, columns=columns))


def table(connection: duckdb.DuckDBPyConnection, name: str, rows: pl.DataFrame) -> None:
    connection.register("incoming", rows)
    connection.execute(f"create or replace temp table {name} as select * from incoming")
    connection.unregister("incoming")
