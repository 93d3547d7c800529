"""A SQLAlchemy dialect that reads through a DuckDB connection inside its owner's open transaction.

The dialect of the package duckdb_engine begins, commits and rolls back by itself, which would end the transaction of
the stage that is being checked. This one has no transaction control: the owner of the connection keeps it.
"""

from typing import Any

import duckdb
import sqlalchemy
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.pool import StaticPool

URL = "duckdb+transaction://"
registry.register("duckdb.transaction", __name__, "TransactionDialect")


class _DBAPI:
    """The attributes that SQLAlchemy reads of a driver's module."""

    paramstyle = "qmark"
    Error = Exception


class TransactionConnection:
    """The owner's connection as its own cursor; a cursor of DuckDB's would be a second connection.

    Attributes:
        failure: the message of the first error since `lend`; empty without one. After it DuckDB gives the transaction up,
            and every statement fails.
    """

    def __init__(self) -> None:
        self._connection: Any = None
        self.failure = ""

    def lend(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Read through this connection until `release`."""
        self._connection, self.failure = connection, ""

    def release(self) -> None:
        """Drop the owner's connection: Great Expectations keeps its context for the life of the process."""
        self._connection = None

    def execute(self, *statement: Any) -> Any:
        """Execute a statement, noting the first error."""
        try:
            return self._connection.execute(*statement)
        except Exception as error:
            self.failure = self.failure or str(error)
            raise

    def cursor(self) -> "TransactionConnection":
        """Return itself: results are read before the next statement is run."""
        return self

    def close(self) -> None:
        """Do nothing, for the cursor and for the connection: the owner closes."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class TransactionDialect(PGDialect):
    """DuckDB's SQL is close to PostgreSQL's. The owner of the connection begins, commits and rolls back.

    SQLAlchemy begins with its first statement and rolls back when it returns a connection to its pool; both would
    end the transaction of the stage that is being checked.
    """

    name = "duckdb"
    driver = "transaction"
    supports_statement_cache = False

    @classmethod
    def import_dbapi(cls) -> Any:
        """Return the stand-in for a driver's module."""
        return _DBAPI

    def initialize(self, connection: sqlalchemy.Connection) -> None:
        """Ask nothing of the server."""
        self.default_schema_name = "main"

    def do_begin(self, dbapi_connection: Any) -> None:
        """Do nothing: the owner has begun."""

    def do_commit(self, dbapi_connection: Any) -> None:
        """Do nothing: the owner commits."""

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Do nothing: the owner rolls back."""


def engine_options(connection: TransactionConnection) -> dict[str, Any]:
    """Build the options of `sqlalchemy.create_engine(URL)` that make `connection` its only one."""
    return {"creator": lambda: connection, "poolclass": StaticPool, "pool_reset_on_return": None}
