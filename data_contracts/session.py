"""Great Expectations' context over a borrowed DuckDB connection, and the suites and Checkpoint of a stage in it."""

import itertools
import logging
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb

from oneclass.data_contracts.contracts import COLUMNS, Contract, Rule, fill_in, rows_query

if TYPE_CHECKING:
    import great_expectations as gx

# Great Expectations reads it when it is loaded.
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

MAX_DEFINITIONS = 96  # of a session; a run has about forty


@dataclass
class Session:
    """A context in memory and its data source, which reads through the borrowed connection.

    Attributes:
        definitions: the ValidationDefinitions that were used last, the last one at the end, each with its contract. A
            run checks some tables once per model with the same values, and most contracts use none of the run's.
    """

    context: "gx.data_context.EphemeralDataContext"
    datasource: Any
    connection: Any
    definitions: dict[tuple[int, str], tuple[Contract, "gx.ValidationDefinition"]] = field(default_factory=dict)

    def checkpoint(self, contracts: Sequence[Contract], values: Sequence[Mapping[str, Any]]) -> "gx.Checkpoint":
        """Build the Checkpoint of a stage's contracts: one ValidationDefinition per table.

        Args:
            values: the parameters of each contract.

        Raises:
            ValueError: a rule has an unknown expectation type, or arguments that its type does not take.
        """
        from oneclass.data_contracts.execution_engine import UnstoredCheckpoint

        definitions = list(map(self._definition, contracts, values))
        return UnstoredCheckpoint(
            name=contracts[0].stage, validation_definitions=definitions, result_format="BOOLEAN_ONLY"
        )

    def _definition(self, contract: Contract, values: Mapping[str, Any]) -> "gx.ValidationDefinition":
        """Build the ValidationDefinition of a contract with these values, or return the one built before."""
        from oneclass.data_contracts.execution_engine import UnstoredValidation

        key = id(contract), repr(values)
        cached = self.definitions.pop(key, None)
        if cached is None:
            suite = build_suite(contract, values)
            if len(self.definitions) >= MAX_DEFINITIONS:
                _, oldest = self.definitions.pop(next(iter(self.definitions)))
                self.datasource.delete_asset(oldest.asset.name)
            asset = self.datasource.add_query_asset(
                name=f"{contract.table} {next(_numbers)}", query=rows_query(contract, values)
            )
            batch = asset.add_batch_definition("rows")
            # The contract is held, so that no other gets its id.
            cached = contract, UnstoredValidation(name=contract.table, data=batch, suite=suite)
        self.definitions[key] = cached
        return cached[1]


@contextmanager
def session(connection: duckdb.DuckDBPyConnection, *, private: bool = False) -> Generator[Session]:
    """Lend the connection to a session for the block. Sessions are reused, since creating one takes 0.4 s.

    Great Expectations uses no network, shows no progress and logs nothing; a rule's failure is in its result.

    Args:
        private: create a session for this block alone, if the block adds to the context.
    """
    with _silence(logging.getLogger("great_expectations")):
        try:
            gx_session = _new_session() if private else _idle_sessions.pop()
        except IndexError:
            gx_session = _new_session()
        gx_session.connection.lend(connection)
        try:
            yield gx_session
            # Not reached after an error, which may leave a session half prepared.
            if not private:
                _idle_sessions.append(gx_session)
        finally:
            gx_session.connection.release()


# Concurrent checks take one each.
_idle_sessions: list[Session] = []
_numbers = itertools.count(1)  # of sessions and assets


def _new_session() -> Session:
    # Loaded here, since it takes about as long as all checks of a small run. The engine's classes define `add_duckdb`.
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    from oneclass.data_contracts.execution_engine import URL, TransactionConnection, engine_options

    context = gx.get_context(mode="ephemeral")
    # A context in memory would write its configuration as YAML for every table, and every result as JSON, to no use.
    context._save_project_config = lambda: None
    context.validation_results_store.set = lambda **_: True
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    connection, name = TransactionConnection(), f"warehouse {next(_numbers)}"
    datasource = context.data_sources.add_duckdb(name=name, connection_string=URL, kwargs=engine_options(connection))
    return Session(context, datasource, connection)


@contextmanager
def _silence(logger: logging.Logger) -> Generator[None]:
    """Discard the records of the logger and its children, some of which set their own level."""
    handler, propagate = logging.NullHandler(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def build_suite(contract: Contract, values: Mapping[str, Any]) -> "gx.ExpectationSuite":
    """Build the suite of a contract: one expectation per rule, with the rule's name in its `meta`.

    Args:
        values: the values of the contract's parameters.

    Raises:
        ValueError: a rule has an unknown expectation type, or arguments that its type does not take.
    """
    import great_expectations as gx
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metadata_types import FailureSeverity

    suite = gx.ExpectationSuite(name=contract.table)
    for rule in [columns_rule(contract), *contract.rules]:
        try:
            # The suite's constructor drops unknown types, and its `add_expectation_configuration` keeps only the last
            # expectation of a type and column.
            expectation = ExpectationConfiguration(
                **_type_and_kwargs(contract, rule, values),
                meta={"rule": rule.name},
                description=rule.description,
                severity=FailureSeverity.CRITICAL if rule.severity == "error" else FailureSeverity.WARNING,
            )
            suite.expectations.append(expectation.to_domain_obj())
        except Exception as error:
            raise ValueError(f"data_contracts/{contract.table}.yaml: rule {rule.name}: {error}") from error
    return suite


def rule_name(expectation: Any) -> str:
    """Return the name of the rule that an expectation was built from."""
    return expectation.meta["rule"]


def columns_rule(contract: Contract) -> Rule:
    """Build the rule that the columns are as declared."""
    return Rule(
        name=COLUMNS,
        expect={"type": "table_columns_to_match_ordered_list", "column_list": list(contract.columns)},
        description="the table has the declared columns and no others, in this order, types and NOT NULL included",
    )


def _type_and_kwargs(contract: Contract, rule: Rule, values: Mapping[str, Any]) -> dict[str, Any]:
    if rule.expect is not None:
        arguments = dict(rule.expect)
        return {"type": f"expect_{arguments.pop('type')}", "kwargs": arguments}
    query = fill_in(contract.rule_sql(rule), values)
    if rule.where is not None:
        query = f"select * from {{batch}} where {query}"
    if "{batch}" not in query:
        # The expectation prints a warning if the query does not name the batch.
        query = f"with batch as not materialized (select * from {{batch}}) select * from ({query})"
    # The expectation gives `{batch}` an alias in a query without a join.
    query = query.replace("{batch}", "(select * from {batch})")
    return {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": query}}
