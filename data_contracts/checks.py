"""The check of a stage's contracts on the connection, and inside the transaction, that made the rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from data_contracts.contracts import UNEXPECTED_ROWS, Contract, Rule, for_stage
from data_contracts.results import RuleResult
from data_contracts.suites import batch_definition, columns_rule, session, suite

ABORTED = "Current transaction is aborted"


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
    if not contracts:
        return results
    with session(connection) as (_, datasource):
        for contract, given in zip(contracts, values, strict=True):
            batch = batch_definition(datasource, contract, given).get_batch()
            for rules in ([columns_rule(contract)], contract.rules):
                found = _validated(batch, contract, rules, given)
                if failed := _failed_query(contract, rules, found):
                    return [*results, failed]
                results += [_result(contract, rule, found[rule.name]) for rule in rules]
                if rules is not contract.rules and not results[-1].success:
                    break
    return results


def _validated(batch: Any, contract: Contract, rules: Sequence[Rule], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Great Expectations' result of every rule, by the rule's name; its order is not ours."""
    if not rules:
        return {}
    made = suite(contract, rules, parameters)
    answer = batch.validate(made, result_format="SUMMARY", expectation_parameters=dict(parameters))
    return {one.expectation_config.meta["rule"]: one for one in answer.results}


def _failed_query(contract: Contract, rules: Sequence[Rule], found: Mapping[str, Any]) -> RuleResult | None:
    """The rule whose query could not be run, not one of those that the aborted transaction took with it."""
    failures = [(rule, message) for rule in rules if (message := _exception_of(found[rule.name]))]
    if not failures:
        return None
    rule, message = next((one for one in failures if ABORTED not in one[1]), failures[0])
    observed = f"could not be checked: {message.split('[SQL:')[0].strip()}"
    return RuleResult(contract.table, rule.name, "error", False, observed, [], rule.description)


def _exception_of(found: Any) -> str | None:
    """The message of the exception behind a result, whichever of its two shapes it comes in."""
    told = found.exception_info or {}
    for one in [told, *told.values()]:
        if isinstance(one, Mapping) and one.get("raised_exception"):
            return str(one.get("exception_message"))
    return None


def _result(contract: Contract, rule: Rule, found: Any) -> RuleResult:
    observed, samples = None, []
    if rule.type == UNEXPECTED_ROWS:
        observed = f"{found.result['observed_value']:,} " + ("row" if found.result["observed_value"] == 1 else "rows")
        samples = found.result["details"]["unexpected_rows"]
    elif "unexpected_count" in found.result:
        observed = f"{found.result['unexpected_count'] or 0:,} of {found.result['element_count']:,} rows"
        samples = [{rule.kwargs["column"]: value} for value in found.result.get("partial_unexpected_list", [])]
    elif "observed_value" in found.result:
        observed = str(found.result["observed_value"])
    return RuleResult(
        contract.table,
        rule.name,
        rule.severity,
        bool(found.success),
        observed,
        _plain(samples),
        rule.description,
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
