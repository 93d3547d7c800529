"""Great Expectations' context over a lent connection, and the Checkpoint of a stage in it."""

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb

from oneclass.data_contracts import lazy_gx
from oneclass.data_contracts.contracts import Contract
from oneclass.data_contracts.suites import build_suite, rows_query

if TYPE_CHECKING:
    import great_expectations as gx


@dataclass
class Prepared:
    """The Checkpoint of some contracts with the values of their parameters."""

    contracts: list[Contract]
    values: list[dict[str, Any]]
    checkpoint: "gx.Checkpoint"


@dataclass
class Session:
    """A context in memory and its data source, which reads through the connection that is lent to it.

    Attributes:
        prepared: the last Checkpoint of each stage. A run checks some stages once a model with the same values.
    """

    context: "gx.data_context.EphemeralDataContext"
    datasource: Any
    connection: Any
    prepared: dict[str, Prepared] = field(default_factory=dict)

    def checkpoint(self, contracts: Sequence[Contract], values: Sequence[Mapping[str, Any]]) -> "gx.Checkpoint":
        """Build the Checkpoint of a stage's contracts: one ValidationDefinition a table.

        Raises:
            ValueError: a rule names no expectation type, or arguments that its type does not take.
        """
        import great_expectations as gx

        contracts, values, stage = list(contracts), [dict(one) for one in values], contracts[0].stage
        earlier = self.prepared.get(stage)
        if earlier and (earlier.contracts, earlier.values) == (contracts, values):
            return earlier.checkpoint
        suites = [build_suite(*one) for one in zip(contracts, values, strict=True)]
        self._remove(stage)
        definitions = [
            gx.ValidationDefinition(
                name=contract.table,
                data=self.datasource.add_query_asset(
                    name=contract.table, query=rows_query(contract, given)
                ).add_batch_definition("rows"),
                suite=self.context.suites.add(suite),
            )
            for contract, given, suite in zip(contracts, values, suites, strict=True)
        ]
        for one in definitions:
            self.context.validation_definitions.add(one)
        checkpoint = gx.Checkpoint(name=stage, validation_definitions=definitions, result_format="BOOLEAN_ONLY")
        self.context.checkpoints.add(checkpoint)
        self.prepared[stage] = Prepared(contracts, values, checkpoint)
        return checkpoint

    def _remove(self, stage: str) -> None:
        if stage not in self.prepared:
            return
        self.context.checkpoints.delete(stage)
        for contract in self.prepared.pop(stage).contracts:
            self.context.validation_definitions.delete(contract.table)
            self.context.suites.delete(contract.table)
            self.datasource.delete_asset(contract.table)

    def forget_results(self) -> None:
        """Drop the results that the context has stored: they are returned, and a process may check for days."""
        store = self.context.validation_results_store
        for key in store.list_keys():
            store.remove_key(key)


@contextmanager
def session(connection: duckdb.DuckDBPyConnection, *, apart: bool = False) -> Iterator[Session]:
    """Lend the connection to a session for the block. Sessions are reused, since making one takes 0.4 s.

    Nothing is loaded from or sent to the network, no progress is shown and nothing is logged: a failure of a rule is in
    the rule's result.

    Args:
        apart: use a session of its own, for a block that adds to the context.
    """
    with _silenced(logging.getLogger("great_expectations")):
        try:
            one = _new_session() if apart else _IDLE.pop()
        except IndexError:
            one = _new_session()
        one.connection.lend(connection)
        try:
            yield one
            one.forget_results()
            # After an error a session may be half prepared: it is not used again.
            if not apart:
                _IDLE.append(one)
        finally:
            one.connection.release()


# Not in use; checks of several threads take one each.
_IDLE: list[Session] = []
_NAMES = itertools.count(1)


def _new_session() -> Session:
    gx = lazy_gx.great_expectations()
    from great_expectations.data_context.types.base import ProgressBarsConfig

    from oneclass.data_contracts.transaction_dialect import URL, TransactionConnection, engine_options

    context = gx.get_context(mode="ephemeral")
    # A context in memory would write its configuration as YAML for every table; nobody reads it.
    context._save_project_config = lambda: None
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    connection, name = TransactionConnection(), f"warehouse {next(_NAMES)}"
    datasource = context.data_sources.add_duckdb(name=name, connection_string=URL, kwargs=engine_options(connection))
    return Session(context, datasource, connection)


@contextmanager
def _silenced(logger: logging.Logger) -> Iterator[None]:
    """Let nothing of the logger or its children out; some children set a level of their own."""
    handler, propagate = logging.NullHandler(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
