"""The check of a stage's contracts on the connection, and inside the transaction, that made the rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from data_contracts.contracts import COLUMNS, UNEXPECTED_ROWS, Contract, Rule, for_stage
from data_contracts.results import RuleResult
from data_contracts.suites import batch_definition, batch_of_all, own_rules, session, suite, suite_of_all


def check(
    connection: duckdb.DuckDBPyConnection, stage: str, parameters: Mapping[str, Any] | None = None
) -> list[RuleResult]:
    """Check every contract that closes `stage` and leave the connection's transaction open as it was.

    Uncommitted rows and temporary tables of the connection are seen; nothing is written. Where the columns
    of a table are not as declared, its other rules are left out. Where a rule's query fails, DuckDB gives the
    transaction up: that rule counts as broken and the check ends with it; of the conditions, which are asked
    together, the first stands for all. Nothing is known then of rules of other types than `unexpected_rows`, which are
    asked last.

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
        others = [[rule for rule in contract.rules if rule.type != UNEXPECTED_ROWS] for contract in contracts]
        suites = [suite(*one) for one in zip(contracts, others, values, strict=True)]  # a misspelt rule raises here
        [of_all] = batch_of_all(datasource).get_batch().validate(suite_of_all(contracts, values)).results
        told = of_all.result["details"]
        given_up = any(one["count"] is None for one in told[-1].values())  # after it nothing can be asked
        for contract, given, rules, made, found in zip(contracts, values, others, suites, told, strict=False):
            of_table = {
                rule.name: _of_ours(contract, rule, found[rule.name])
                for rule in own_rules(contract)
                if rule.name in found
            }
            if failed := [name for name, one in found.items() if one["count"] is None]:
                return [*results, of_table[failed[0]]]
            if rules and of_table[COLUMNS].success and not given_up:
                answers = _validated(batch_definition(datasource, contract, given).get_batch(), made, given)
                if failure := _failure(contract, rules, answers):
                    return [*results, failure]
                of_table |= {rule.name: _of_expectation(contract, rule, answers[rule.name]) for rule in rules}
            results += [of_table[name] for name in [COLUMNS, *(r.name for r in contract.rules)] if name in of_table]
    return results


def _validated(batch: Any, made: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Great Expectations' result of every rule, by the rule's name; its order is not ours."""
    answer = batch.validate(made, result_format="SUMMARY", expectation_parameters=dict(parameters))
    return {one.expectation_config.meta["rule"]: one for one in answer.results}


def _failure(contract: Contract, rules: Sequence[Rule], found: Mapping[str, Any]) -> RuleResult | None:
    """The first rule that could not be checked."""
    for rule in rules:
        if message := _exception_of(found[rule.name]):
            return _not_checked(contract, rule, message)
    return None


def _not_checked(contract: Contract, rule: Rule, message: str) -> RuleResult:
    observed = f"could not be checked: {message.split('[SQL:')[0].strip()}"
    return RuleResult(contract.table, rule.name, "error", False, observed, [], rule.description)


def _of_ours(contract: Contract, rule: Rule, found: Mapping[str, Any]) -> RuleResult:
    """What a rule's condition or query found."""
    if found["count"] is None:
        return _not_checked(contract, rule, found["failure"])
    observed = f"{found['count']:,} " + ("row" if found["count"] == 1 else "rows")
    samples = _plain(found["rows"])
    return RuleResult(
        contract.table, rule.name, rule.severity, found["count"] == 0, observed, samples, rule.description
    )


def _exception_of(found: Any) -> str | None:
    """The message of the exception behind a result, whichever of its two shapes it comes in."""
    told = found.exception_info or {}
    for one in [told, *told.values()]:
        if isinstance(one, Mapping) and one.get("raised_exception"):
            return str(one.get("exception_message"))
    return None


def _of_expectation(contract: Contract, rule: Rule, found: Any) -> RuleResult:
    """What an expectation of Great Expectations' own found."""
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
