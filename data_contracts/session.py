"""Great Expectations' context over a borrowed DuckDB connection, and the Checkpoint of a stage in it."""

import itertools
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb

from oneclass.data_contracts import lazy_gx
from oneclass.data_contracts.contracts import Contract
from oneclass.data_contracts.suites import build_suite, rows_query

if TYPE_CHECKING:
    import great_expectations as gx


MAX_CHECKPOINTS = 24  # of a session; a run has about twelve


@dataclass
class CachedCheckpoint:
    """A Checkpoint with its contracts and the values of their parameters.

    Attributes:
        shared: what `execution_engine.share_configurations` keeps from one run of the Checkpoint to the next.
    """

    contracts: list[Contract]
    values: list[dict[str, Any]]
    checkpoint: "gx.Checkpoint"
    shared: dict[Any, Any] = field(default_factory=dict)


@dataclass
class Session:
    """A context in memory and its data source, which reads through the borrowed connection.

    Attributes:
        checkpoints: the Checkpoints that were used last, the last one at the end. A run checks some stages once per
            model with the same values.
    """

    context: "gx.data_context.EphemeralDataContext"
    datasource: Any
    connection: Any
    checkpoints: list[CachedCheckpoint] = field(default_factory=list)

    def checkpoint(self, contracts: Sequence[Contract], values: Sequence[Mapping[str, Any]]) -> CachedCheckpoint:
        """Build the Checkpoint of a stage's contracts: one ValidationDefinition per table.

        Args:
            values: the parameters of each contract.

        Raises:
            ValueError: a rule has an unknown expectation type, or arguments that its type does not take.
        """
        from oneclass.data_contracts.execution_engine import UnstoredCheckpoint, UnstoredValidation

        contracts, values = list(contracts), [dict(parameters) for parameters in values]
        for place, cached in enumerate(self.checkpoints):
            if (cached.contracts, cached.values) == (contracts, values):
                self.checkpoints.append(self.checkpoints.pop(place))
                return cached
        suites = list(map(build_suite, contracts, values))
        if len(self.checkpoints) >= MAX_CHECKPOINTS:
            for definition in self.checkpoints.pop(0).checkpoint.validation_definitions:
                self.datasource.delete_asset(definition.asset.name)
        number = next(_numbers)
        definitions: list[gx.ValidationDefinition] = [
            UnstoredValidation(
                name=contract.table,
                data=self.datasource.add_query_asset(
                    name=f"{contract.table} {number}", query=rows_query(contract, parameters)
                ).add_batch_definition("rows"),
                suite=suite,
            )
            for contract, parameters, suite in zip(contracts, values, suites, strict=True)
        ]
        checkpoint = UnstoredCheckpoint(
            name=contracts[0].stage, validation_definitions=definitions, result_format="BOOLEAN_ONLY"
        )
        self.checkpoints.append(CachedCheckpoint(contracts, values, checkpoint))
        return self.checkpoints[-1]


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
_numbers = itertools.count(1)  # of sessions and Checkpoints


def _new_session() -> Session:
    gx = lazy_gx.load_great_expectations()
    from great_expectations.data_context.types.base import ProgressBarsConfig

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
