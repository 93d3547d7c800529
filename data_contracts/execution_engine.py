"""DuckDB as a data source of Great Expectations, which does not support it, and a Checkpoint without repeated work.

Its SQLAlchemy dialect reads through a DuckDB connection inside its owner's open transaction. That of the package
duckdb_engine begins, commits and rolls back by itself, which would end the transaction of the stage under check.

Import it only when a check runs, since Great Expectations takes seconds to load.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Literal

import duckdb
import sqlalchemy
from great_expectations import Checkpoint, ValidationDefinition
from great_expectations.compatibility.pydantic import PrivateAttr
from great_expectations.core import ExpectationSuiteValidationResult
from great_expectations.core.freshness_diagnostics import (
    CheckpointFreshnessDiagnostics,
    ValidationDefinitionFreshnessDiagnostics,
)
from great_expectations.core.id_dict import IDDict
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.datasource.fluent import SQLDatasource
from great_expectations.execution_engine import ExecutionEngine, SqlAlchemyExecutionEngine
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.query_metrics.query_table.unexpected_rows_query_table import (
    UnexpectedRowsQueryTable,
)
from great_expectations.validator.metric_configuration import MetricConfiguration
from great_expectations.validator.validator import Validator
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.pool import StaticPool

MAX_SAMPLES = 20
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


class FirstUnexpectedRows(UnexpectedRowsQueryTable):
    """The rows of an `UnexpectedRowsExpectation`: the first `MAX_SAMPLES` in a fixed order, read only if any exist.

    Great Expectations' own metric always runs the query a second time and makes DuckDB hold all of its rows.
    """

    @metric_value(engine=TransactionExecutionEngine)
    def _sqlalchemy(  # pyright: ignore[reportIncompatibleMethodOverride]  (the decorator makes a class method of it)
        cls,  # noqa: N805
        execution_engine: TransactionExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> list[dict[str, Any]]:
        if metrics["row_count"] == 0:
            return []
        batch, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        query = cls._get_substituted_batch_subquery_from_query_and_batch_selectable(
            query=cls._get_query_from_metric_value_kwargs(metric_value_kwargs),
            batch_selectable=batch,
            execution_engine=execution_engine,
        )
        # one row per row that breaks the rule, the first of them, the same ones every time
        text = f"select * from (\n{query}\n) order by all limit {MAX_SAMPLES}"
        return cls._get_sqlalchemy_records_from_substituted_batch_subquery(text, execution_engine)

    @classmethod
    def _get_evaluation_dependencies(
        cls,
        metric: MetricConfiguration,
        configuration: ExpectationConfiguration | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
        runtime_configuration: dict[str, Any] | None = None,
    ) -> dict[str, MetricConfiguration]:
        count = MetricConfiguration(
            "unexpected_rows_query.row_count", metric.metric_domain_kwargs, metric.metric_value_kwargs
        )
        return {"row_count": count}


class UnstoredValidation(ValidationDefinition):
    """A ValidationDefinition that runs without being stored; Great Expectations would compare it with a stored copy.

    Its expectations must not change between runs, since they share what Great Expectations builds from them.
    """

    _shared: dict[Any, Any] = PrivateAttr(default_factory=dict)

    def is_fresh(self) -> ValidationDefinitionFreshnessDiagnostics:
        """Return that nothing has changed, as there is no stored copy."""
        return ValidationDefinitionFreshnessDiagnostics(errors=[])

    def run(self, **arguments: Any) -> ExpectationSuiteValidationResult:
        """Run the suite as Great Expectations does."""
        with share_configurations(self._shared):
            return super().run(**arguments)


class UnstoredCheckpoint(Checkpoint):
    """A Checkpoint that runs without being stored; Great Expectations would compare it with a stored copy."""

    def is_fresh(self) -> CheckpointFreshnessDiagnostics:
        """Return that nothing has changed, as there is no stored copy."""
        return CheckpointFreshnessDiagnostics(errors=[])


_build_configuration: Any = Expectation.configuration.fget
_build_expectation: Any = ExpectationConfiguration.to_domain_obj
_compute_id: Any = IDDict.to_id
_Validator: Any = Validator  # a method of it is replaced, which is private
_build_graphs = _Validator._generate_metric_dependency_subgraphs_for_each_expectation_configuration
_of_thread = threading.local()


@contextmanager
def share_configurations(shared: dict[Any, Any]) -> Generator[None]:
    """Build the configuration of each expectation once in the block, in this thread; it must not change meanwhile.

    Great Expectations builds it and its expectation again for every argument that it looks up, about twenty times per
    expectation, and serializes the same arguments of metrics as often. Every run of a Checkpoint finds again which
    metrics its expectations need.

    Args:
        shared: what earlier blocks have built from the same expectations; empty for the first.
    """
    _of_thread.shared = shared
    try:
        yield
    finally:
        _of_thread.shared = None


def _build_once(build: Any, source: Any) -> Any:
    """Build something from an object, or return what was built from it earlier in the block."""
    shared = getattr(_of_thread, "shared", None)
    if shared is None:
        return build(source)
    if id(source) not in shared:
        shared[id(source)] = source, build(source)  # held, so that no other gets its id
    return shared[id(source)][1]


def _read_configuration(expectation: Expectation) -> ExpectationConfiguration:
    return _build_once(_build_configuration, expectation)


def _read_expectation(configuration: ExpectationConfiguration) -> Expectation:
    return _build_once(_build_expectation, configuration)


def _read_id(arguments: IDDict, *keys: Any, **named_keys: Any) -> Any:
    """Compute the id of a metric's arguments, once in the block for equal ones whose values are texts or None."""
    shared = getattr(_of_thread, "shared", None)
    items = tuple(arguments.items())
    plain = type(arguments) is IDDict and all(value is None or type(value) is str for _, value in items)
    if shared is None or keys or named_keys or not plain:
        return _compute_id(arguments, *keys, **named_keys)
    if items not in shared:
        shared[items] = _compute_id(arguments)
    return shared[items]


def _read_graphs(
    validator: Validator,
    expectation_configurations: list[ExpectationConfiguration],
    processed_configurations: list[ExpectationConfiguration],
    catch_exceptions: bool,
    runtime_configuration: dict[str, Any] | None = None,
) -> tuple[list[Any], list[Any], list[Any]]:
    """Find the metrics that expectations need, once in the block; `processed_configurations` is empty."""
    shared = getattr(_of_thread, "shared", None)
    arguments = expectation_configurations, processed_configurations, catch_exceptions, runtime_configuration
    if shared is None:
        return _build_graphs(validator, *arguments)
    key = (validator.active_batch_id, str(runtime_configuration), *map(id, expectation_configurations))
    if key not in shared:
        graphs, failures, processed = _build_graphs(validator, *arguments)
        if failures:
            return graphs, failures, processed
        shared[key] = [*expectation_configurations], graphs, [*processed]  # the first are held, as above
    _, graphs, processed = shared[key]
    return [*graphs], [], [*processed]


Expectation.configuration = property(_read_configuration)  # pyright: ignore[reportAttributeAccessIssue]  (replaced)
ExpectationConfiguration.to_domain_obj = _read_expectation  # pyright: ignore[reportAttributeAccessIssue]  (the same)
IDDict.to_id = _read_id  # pyright: ignore[reportAttributeAccessIssue]  (the same)
setattr(Validator, _build_graphs.__name__, _read_graphs)
