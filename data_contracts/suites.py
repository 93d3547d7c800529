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
    query = f"select * from {contract.table}"
    if contract.only:
        query += f" where {_filled(contract.only, parameters)}"
    return datasource.add_query_asset(name=contract.table, query=query).add_batch_definition("rows")


def suite(
    contract: Contract, rules: Sequence[Rule], parameters: Mapping[str, Any], *, apart: bool = False
) -> "gx.ExpectationSuite":
    """The rules as expectations, each with the names of its rules in its `meta`.

    Args:
        apart: an expectation for each rule; else one asks all of `unexpected_rows`, which is many times faster.

    Raises:
        ValueError: a rule names no expectation type, or arguments that its type does not take.
    """
    import great_expectations as gx
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    ours = [rule for rule in rules if rule.type == UNEXPECTED_ROWS]
    groups = [[rule] for rule in rules if apart or rule.type != UNEXPECTED_ROWS]
    made = gx.ExpectationSuite(name=contract.table)
    for group in groups if apart or not ours else [ours, *groups]:
        kwargs = _asked(contract, group, parameters) if group[0].type == UNEXPECTED_ROWS else dict(group[0].kwargs)
        configuration = ExpectationConfiguration(
            type=group[0].type,
            kwargs=kwargs,
            meta={"rules": [rule.name for rule in group]},
            description="; ".join(rule.description for rule in group),
            severity="critical" if any(rule.severity == "error" for rule in group) else "warning",
        )
        try:
            # Expectation by expectation: the suite's constructor drops a type that it does not know, and its
            # add_expectation_configuration keeps one expectation of a type and column, the last.
            made.add_expectation(configuration.to_domain_obj())
        except Exception as error:
            names = ", ".join(rule.name for rule in group)
            raise ValueError(f"data_contracts/{contract.table}.yaml: rule {names}: {error}") from error
    return made


def columns_rule() -> Rule:
    """The rule that every table has; what is declared of its columns stands in the contract."""
    return Rule(
        name=COLUMNS,
        type=UNEXPECTED_ROWS,
        where="false",
        description="the table has the declared columns and no others, types and NOT NULL included",
    )


def _asked(contract: Contract, rules: Sequence[Rule], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `unexpected_rows`, which asks all these rules at once."""
    asked: dict[str, Any] = {"table": contract.table, "declared": {}, "conditions": {}, "queries": {}}
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
