"""A DuckDB connection lent to SQLAlchemy inside its owner's open transaction, which SQLAlchemy cannot end.

This is all of a DuckDB dialect that reading takes. The dialect of the package duckdb_engine begins, commits and rolls
back by itself, which would end the stage's transaction.
"""

from typing import Any

import duckdb
import sqlalchemy
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.pool import StaticPool

URL = "duckdb+lent://"
registry.register("duckdb.lent", __name__, "LentDialect")


class _DBAPI:
    """What SQLAlchemy asks of a driver's module."""

    paramstyle = "qmark"
    Error = Exception


class LentConnection:
    """The owner's connection as its own cursor; a cursor of DuckDB's would be a second connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def cursor(self) -> "LentConnection":
        """Itself: results are read before the next statement is run."""
        return self

    def close(self) -> None:
        """Nothing, of the cursor and of the connection alike: the owner closes."""

    def give_back(self) -> None:
        """Let go of the owner's connection: Great Expectations keeps its last context, and all that is in it."""
        self._connection = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class LentDialect(PGDialect):
    """DuckDB's SQL is near to PostgreSQL's. Whoever lends the connection begins, commits and rolls back.

    SQLAlchemy begins with its first statement and rolls back when it gives a connection back; both would
    end the transaction of the stage that is being checked.
    """

    name = "duckdb"
    driver = "lent"
    supports_statement_cache = False

    @classmethod
    def import_dbapi(cls) -> type[_DBAPI]:
        """The stand-in for a driver's module."""
        return _DBAPI

    def initialize(self, connection: sqlalchemy.Connection) -> None:
        """Nothing is asked of the server."""
        self.default_schema_name = "main"

    def do_begin(self, dbapi_connection: LentConnection) -> None:
        """Nothing: the owner has begun."""

    def do_commit(self, dbapi_connection: LentConnection) -> None:
        """Nothing: the owner commits."""

    def do_rollback(self, dbapi_connection: LentConnection) -> None:
        """Nothing: the owner rolls back."""


def engine_options(lent: LentConnection) -> dict[str, Any]:
    """Options of `sqlalchemy.create_engine(URL)` that make its one connection the lent one."""
    return {"creator": lambda: lent, "poolclass": StaticPool, "pool_reset_on_return": None}
