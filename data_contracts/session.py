"""Great Expectations' context over a borrowed DuckDB connection, and the Checkpoint of a stage in it."""

import itertools
import logging
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb

from oneclass.data_contracts.contracts import Contract
from oneclass.data_contracts.suites import build_suite, rows_query

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

    import oneclass.data_contracts.execution_engine  # noqa: F401
    from oneclass.data_contracts.transaction_dialect import URL, TransactionConnection, engine_options

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
