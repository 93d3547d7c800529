"""Edges of a relation as a matrix, and rows that Python drew as a relation."""

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

import sql
from tasks.stores.warehouse import select


def matrix(
    connection: duckdb.DuckDBPyConnection, edges: str, columns: int, users: np.ndarray | None = None
) -> tuple[np.ndarray, csr_matrix]:
    """(users, CSR) of the edges of a relation; row i belongs to the i-th of `users`, by default all it names."""
    user, item, count = (column.to_numpy() for column in select(connection, "split/edges", {"edges": edges}))
    users = np.unique(user) if users is None else users
    place = np.full(int(max(users.max(initial=-1), user.max(initial=-1))) + 1, -1, dtype=np.int32)
    place[users] = np.arange(len(users), dtype=np.int32)
    kept = place[user] >= 0
    entries = (count[kept].astype(np.float32), (place[user[kept]], item[kept]))
    found = csr_matrix(entries, shape=(len(users), columns))
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
