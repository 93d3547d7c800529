"""DuckDB as a data source of Great Expectations, which does not support it, inside its owner's open transaction.

The SQLAlchemy dialect of the package duckdb_engine begins, commits and rolls back by itself, which would end the
transaction of the stage under check.

Import it only when a check runs, since Great Expectations takes seconds to load.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import duckdb
import great_expectations as gx
import sqlalchemy
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)
from great_expectations.datasource.fluent import SQLDatasource
from great_expectations.execution_engine import ExecutionEngine, SqlAlchemyExecutionEngine
from great_expectations.expectations import UnexpectedRowsExpectation
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
        failure: the message of the first error, or empty. After an error DuckDB aborts the transaction, and every
            statement fails.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self.failure = ""

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


class TransactionExecutionEngine(SqlAlchemyExecutionEngine):
    """An engine with one connection, since Great Expectations reads rows after returning the connection to the pool."""

    @contextmanager
    def get_connection(self) -> Generator[sqlalchemy.Connection]:
        """Yield the one connection."""
        connection = self._connection
        if connection is None:
            connection = self._connection = self.engine.connect()
        yield connection


class DuckDBDatasource(SQLDatasource):
    """A DuckDB data source; defining this class creates `context.data_sources.add_duckdb`."""

    type: Literal["duckdb"] = "duckdb"  # pyright: ignore[reportIncompatibleVariableOverride]  (as every data source)

    @property
    def execution_engine_type(self) -> "type[SqlAlchemyExecutionEngine]":
        """Return the engine with one connection."""
        return TransactionExecutionEngine


class ExpectNoRows(UnexpectedRowsExpectation):
    """An `UnexpectedRowsExpectation` that only counts the rows, as the original runs its query a second time."""

    metric_dependencies: ClassVar[tuple[str, ...]] = ("unexpected_rows_query.row_count",)

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
    ) -> dict[str, Any]:
        count = metrics["unexpected_rows_query.row_count"]
        return {"success": count == 0, "result": {"observed_value": count}}


def add_source(connection: TransactionConnection) -> Any:
    """Add a data source that reads through the connection to a new context, which takes milliseconds."""
    config = DataContextConfig(
        progress_bars=ProgressBarsConfig(globally=False), store_backend_defaults=InMemoryStoreBackendDefaults()
    )
    context = gx.get_context(mode="ephemeral", project_config=config)
    options = {"creator": lambda: connection, "poolclass": StaticPool, "pool_reset_on_return": None}
    sources: Any = context.data_sources
    return sources.add_duckdb(name="warehouse", connection_string=URL, kwargs=options)
