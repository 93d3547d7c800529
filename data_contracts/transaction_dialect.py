"""A SQLAlchemy dialect that reads through a DuckDB connection inside its owner's open transaction.

The dialect of the package duckdb_engine begins, commits and rolls back by itself, which would end the transaction of
the stage under check. This one leaves transaction control to the owner of the connection.
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
    """The attributes of a driver's module that SQLAlchemy reads."""

    paramstyle = "qmark"
    Error = Exception


class TransactionConnection:
    """The owner's connection as its own cursor; a cursor of DuckDB's would be a second connection.

    Attributes:
        failure: the message of the first error since `lend`, or empty. After an error DuckDB aborts the transaction,
            and every statement fails.
    """

    def __init__(self) -> None:
        self._connection: Any = None
        self.failure = ""

    def lend(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Read through this connection until `release`."""
        self._connection, self.failure = connection, ""

    def release(self) -> None:
        """Drop the owner's connection, since Great Expectations keeps its context until the process ends."""
        self._connection = None

    def execute(self, *statement: Any) -> Any:
        """Execute a statement, and record the first error."""
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
    """PostgreSQL's dialect, which is close to DuckDB's, without transaction control.

    SQLAlchemy begins with its first statement and rolls back when it returns a connection to its pool; both would
    end the transaction of the stage under check.
    """

    name = "duckdb"
    driver = "transaction"
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls) -> Any:
        """Return the stand-in for a driver's module."""
        return _DBAPI

    def initialize(self, connection: sqlalchemy.Connection) -> None:
        """Set the default schema without a query."""
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
