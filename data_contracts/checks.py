"""The check of a stage's contracts on the connection, and inside the transaction, that made the rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from data_contracts.contracts import UNEXPECTED_ROWS, Contract, Rule, for_stage
from data_contracts.results import RuleResult
from data_contracts.suites import batch_definition, columns_rule, filled, session, suite, table_query

SAMPLES_KEPT = 20


def check(
    connection: duckdb.DuckDBPyConnection, stage: str, parameters: Mapping[str, Any] | None = None
) -> list[RuleResult]:
    """Check every contract that closes `stage` and leave the connection's transaction open as it was.

    Uncommitted rows and temporary tables of the connection are seen; nothing is written. Where the columns
    of a table are not as declared, its other rules are left out. Where a rule's query fails, DuckDB gives
    the transaction up: that rule counts as broken and the check ends with it.

    Args:
        parameters: values that the contracts' rules refer to by name; more than they ask for is fine.

    Returns:
        One result a rule, and one named `columns` a table, in the order of the files.

    Raises:
        ValueError: a contract asks for a value that is not in `parameters`, or names no expectation type.
    """
    return check_contracts(connection, for_stage(stage), parameters or {})


def check_contracts(
    connection: duckdb.DuckDBPyConnection, contracts: Sequence[Contract], parameters: Mapping[str, Any]
) -> list[RuleResult]:
    """As `check`, of any contracts."""
    values = [contract.values(parameters) for contract in contracts]
    results: list[RuleResult] = []
    for contract, given in zip(contracts, values, strict=True):
        found, whole = _of_table(connection, contract, given)
        results += found
        if not whole:
            break
    return results


def _of_table(
    connection: duckdb.DuckDBPyConnection, contract: Contract, parameters: Mapping[str, Any]
) -> tuple[list[RuleResult], bool]:
    """Results in the order of the rules, and whether all could be checked; where not, that of the one alone.

    DuckDB is asked the queries itself. Great Expectations takes seconds to load and many times a query's own time
    to have it asked; it is left to the rules that are written in its types.
    """
    columns, *rules = columns_rule(contract), *contract.rules
    found: dict[str, RuleResult] = {}
    for rule in [columns, *(rule for rule in rules if rule.type == UNEXPECTED_ROWS)]:
        try:
            found[rule.name] = _of_query(connection, contract, rule, parameters)
        except duckdb.Error as error:
            return [_not_checked(contract, rule, str(error))], False
        if not found[columns.name].success:
            return list(found.values()), True
    if expectations := [rule for rule in rules if rule.type != UNEXPECTED_ROWS]:
        answers = _expected(connection, contract, expectations, parameters)
        for rule in expectations:
            if message := _exception_of(answers[rule.name]):
                return [_not_checked(contract, rule, message)], False
            found[rule.name] = _of_expectation(contract, rule, answers[rule.name])
    return [found[rule.name] for rule in (columns, *rules)], True


def _of_query(
    connection: duckdb.DuckDBPyConnection, contract: Contract, rule: Rule, parameters: Mapping[str, Any]
) -> RuleResult:
    """Counted first: sorting rows, to show the same ones every time, takes longer than counting none."""
    query = filled(contract.query_of(rule), parameters).format(batch=f"({table_query(contract, parameters)})")
    (count,) = connection.execute(f"select count(*) from ({query}\n)").fetchone()
    samples = []
    if count:
        rows = connection.execute(f"select * from ({query}\n) order by all limit {SAMPLES_KEPT}")
        names = [name for name, *_ in rows.description]
        samples = [_plain(dict(zip(names, row, strict=True))) for row in rows.fetchall()]
    observed = f"{count:,} " + ("row" if count == 1 else "rows")
    return RuleResult(contract.table, rule.name, rule.severity, count == 0, observed, samples, rule.description)


def _expected(
    connection: duckdb.DuckDBPyConnection, contract: Contract, rules: Sequence[Rule], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Great Expectations' result of every rule, by the rule's name; its order is not ours."""
    with session(connection) as (_, datasource):
        batch = batch_definition(datasource, contract, parameters).get_batch()
        made = suite(contract, rules, parameters)
        answer = batch.validate(made, result_format="SUMMARY", expectation_parameters=dict(parameters))
    return {one.expectation_config.meta["rule"]: one for one in answer.results}


def _not_checked(contract: Contract, rule: Rule, message: str) -> RuleResult:
    observed = f"could not be checked: {message.split('[SQL:')[0].strip()}"
    return RuleResult(contract.table, rule.name, "error", False, observed, [], rule.description)


def _exception_of(found: Any) -> str | None:
    """The message of the exception behind a result, whichever of its two shapes it comes in."""
    told = found.exception_info or {}
    for one in [told, *told.values()]:
        if isinstance(one, Mapping) and one.get("raised_exception"):
            return str(one.get("exception_message"))
    return None


def _of_expectation(contract: Contract, rule: Rule, found: Any) -> RuleResult:
    observed, samples = None, []
    if "unexpected_count" in found.result:
        observed = f"{found.result['unexpected_count'] or 0:,} of {found.result['element_count']:,} rows"
        samples = [{rule.kwargs["column"]: value} for value in found.result.get("partial_unexpected_list", [])]
    elif "observed_value" in found.result:
        observed = str(found.result["observed_value"])
    return RuleResult(
        contract.table, rule.name, rule.severity, bool(found.success), observed, _plain(samples), rule.description
    )


def _plain(value: Any) -> Any:
    """`value` as JSON can hold it: what it has no word for, NaN and infinity too, becomes text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)
