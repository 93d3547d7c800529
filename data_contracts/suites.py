"""Contracts as Great Expectations' own suites and batches, for the check and for its Data Docs alike."""

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb

from data_contracts import loading
from data_contracts.contracts import COLUMNS, UNEXPECTED_ROWS, Contract, Rule, placeholders

if TYPE_CHECKING:
    import great_expectations as gx


@contextmanager
def session(
    connection: duckdb.DuckDBPyConnection, *, apart: bool = False
) -> Iterator[tuple["gx.data_context.EphemeralDataContext", Any]]:
    """A context of Great Expectations and its data source over `connection`, for as long as the block lasts.

    It loads nothing from and sends nothing to the network, shows no progress and logs nothing: what goes
    wrong in a rule comes back in the rule's result.

    Args:
        apart: a context of its own, for a block that adds to it; else the one that all checks of the process share.
    """
    with _silenced(logging.getLogger("great_expectations")):
        context = _context() if apart else _shared_context()
        from data_contracts.lent_connection import URL, LentConnection, engine_options

        lent, name = LentConnection(connection), f"warehouse {next(_SESSIONS)}"
        datasource = context.data_sources.add_duckdb(name=name, connection_string=URL, kwargs=engine_options(lent))
        try:
            yield context, datasource
        finally:
            lent.give_back()
            context.data_sources.delete(name)


def _context() -> "gx.data_context.EphemeralDataContext":
    gx = loading.great_expectations()
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    # A context in memory would still spell its configuration out as YAML for every table; nobody reads it.
    context._save_project_config = lambda: None
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    return context


_shared_context = cache(_context)  # making one takes as long as a small table's check
_SESSIONS = itertools.count(1)  # so that sessions that are open at once differ in name


@contextmanager
def _silenced(logger: logging.Logger) -> Iterator[None]:
    """Nothing of the logger or its children gets out; some children set a level of their own."""
    handler, propagate = logging.NullHandler(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def batch_definition(datasource: Any, contract: Contract, parameters: Mapping[str, Any]) -> Any:
    """The rows of the table that the contract speaks of."""
    return _query_asset(datasource, contract.table, rows(contract, parameters))


def batch_of_all(datasource: Any) -> Any:
    """What an expectation that asks for its tables itself is handed."""
    return _query_asset(datasource, "all tables of a stage", "select 1")


def _query_asset(datasource: Any, name: str, query: str) -> Any:
    return datasource.add_query_asset(name=name, query=query).add_batch_definition("rows")


def rows(contract: Contract, parameters: Mapping[str, Any]) -> str:
    """The query of the rows that are checked."""
    query = f"select * from {contract.table}"
    return f"{query} where {_filled(contract.only, parameters)}" if contract.only else query


def suite(contract: Contract, rules: Sequence[Rule], parameters: Mapping[str, Any]) -> "gx.ExpectationSuite":
    """The rules as expectations, each with the rule's name in its `meta`.

    Raises:
        ValueError: a rule names no expectation type, or arguments that its type does not take.
    """
    import great_expectations as gx

    made = gx.ExpectationSuite(name=contract.table)
    for rule in rules:
        ours = rule.type == UNEXPECTED_ROWS
        kwargs = {"tables": [_asked(contract, [rule], parameters)]} if ours else dict(rule.kwargs)
        severity = "critical" if rule.severity == "error" else "warning"
        meta = {"rule": rule.name}
        try:
            _add(made, type=rule.type, kwargs=kwargs, meta=meta, description=rule.description, severity=severity)
        except Exception as error:
            raise ValueError(f"data_contracts/{contract.table}.yaml: rule {rule.name}: {error}") from error
    return made


def suite_of_all(contracts: Sequence[Contract], values: Sequence[Mapping[str, Any]]) -> "gx.ExpectationSuite":
    """One expectation that asks all of a stage's rules of the type `unexpected_rows`, many times faster than each alone.

    Args:
        values: those of the parameters, for each contract.
    """
    import great_expectations as gx

    made = gx.ExpectationSuite(name="all tables of a stage")
    tables = [_asked(one, own_rules(one), given) for one, given in zip(contracts, values, strict=True)]
    _add(made, type=UNEXPECTED_ROWS, kwargs={"tables": tables})
    return made


def _add(made: "gx.ExpectationSuite", **configuration: Any) -> None:
    # Expectation by expectation: the suite's constructor drops a type that it does not know, and its
    # add_expectation_configuration keeps one expectation of a type and column, the last.
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    made.add_expectation(ExpectationConfiguration(**configuration).to_domain_obj())


def own_rules(contract: Contract) -> list[Rule]:
    """The rules of the type `unexpected_rows`, the one on the columns first."""
    return [columns_rule(), *(rule for rule in contract.rules if rule.type == UNEXPECTED_ROWS)]


def columns_rule() -> Rule:
    """The rule that every table has; what is declared of its columns stands in the contract."""
    return Rule(
        name=COLUMNS,
        type=UNEXPECTED_ROWS,
        where="false",
        description="the table has the declared columns and no others, types and NOT NULL included",
    )


def _asked(contract: Contract, rules: Sequence[Rule], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What `unexpected_rows` asks of the table for these rules."""
    asked: dict[str, Any] = {"table": contract.table, "rows": rows(contract, parameters)}
    asked |= {"declared": {}, "conditions": {}, "queries": {}}
    for rule in rules:
        if rule.name == COLUMNS:
            asked["declared"] = {name: column.declared for name, column in contract.columns.items()}
        else:
            kind = "conditions" if rule.where else "queries"
            asked[kind][rule.name] = _filled(contract.text_of(rule), parameters)
    return asked


def _filled(text: str, parameters: Mapping[str, Any]) -> str:
    """`text` with every `{name}` but `{batch}` replaced by the SQL literal of its value."""
    for name in placeholders(text):
        text = text.replace("{" + name + "}", _literal(parameters[name]))
    return text


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return f"{value!r}::double" if isinstance(value, float) else str(value).lower()
    if isinstance(value, str | date | datetime):
        # A query passes Python's format and SQLAlchemy's text, to which braces, colons and backslashes speak.
        spelt = (f"' || chr({ord(one)}) || '" if one in "{}:\\%'" else one for one in str(value))
        return "('" + "".join(spelt) + "')"
    raise ValueError(f"a contract's parameter is text, a number, a date, true, false or nothing, not {value!r}")
