"""The check of a stage's contracts on the connection, and inside the transaction, that made the rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from oneclass import sql
from oneclass.data_contracts.contracts import UNEXPECTED_ROWS, Contract, Rule, for_stage
from oneclass.data_contracts.results import RuleResult
from oneclass.data_contracts.session import Session, session
from oneclass.data_contracts.suites import columns_rule, rule_name

# In this form core expectations return whole rows, and only as many as DuckDB is asked for.
SAMPLES = {"result_format": "BASIC", "include_unexpected_rows": True, "partial_unexpected_count": 20}


def check(
    connection: duckdb.DuckDBPyConnection, stage: str, parameters: Mapping[str, Any] | None = None
) -> list[RuleResult]:
    """Check every contract that closes `stage` and leave the connection's transaction open as it was.

    Uncommitted rows and temporary tables of the connection are seen; nothing is written. Where the columns of a table
    differ from those declared, its other rules are left out. Where a statement fails, DuckDB gives the transaction up:
    the rule that asked counts as broken and is the last result.

    Args:
        parameters: values that the contracts' rules refer to by name; others are ignored.

    Returns:
        One result a rule, and one named `columns` a table, in the order of the files.

    Raises:
        ValueError: a contract asks for a value that is not in `parameters`, or names no expectation type.
    """
    return check_contracts(connection, for_stage(stage), parameters or {})


def check_contracts(
    connection: duckdb.DuckDBPyConnection, contracts: Sequence[Contract], parameters: Mapping[str, Any]
) -> list[RuleResult]:
    """Check any contracts, as `check` does those of a stage."""
    values = {contract.table: contract.values(parameters) for contract in contracts}
    results = _compare_columns(connection, contracts)
    whole = [contract for contract in contracts if contract.table not in results]
    if whole:
        with session(connection) as one:
            results |= _run(one, whole, [values[contract.table] for contract in whole])
    combined: list[RuleResult] = []
    for contract in contracts:
        combined += results.get(contract.table, [])
    return combined


def _compare_columns(
    connection: duckdb.DuckDBPyConnection, contracts: Sequence[Contract]
) -> dict[str, list[RuleResult]]:
    """Find the tables whose columns differ from those declared: a query that asks for another column fails."""
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in connection.execute(sql.statement("data_contracts/columns")).fetchall():
        found.setdefault(table, {})[column] = kind
    results = {}
    for contract in contracts:
        declared = {name: column.declared for name, column in contract.columns.items()}
        columns = found.get(contract.table, {})
        rows = [
            {"column_name": name, "declared": declared.get(name), "found": columns.get(name)}
            for name in declared | columns
            if declared.get(name) != columns.get(name)
        ]
        if rows:
            observed = _count_rows(len(rows)) if columns else f"the table {contract.table} does not exist"
            results[contract.table] = [_result(contract, columns_rule(contract), False, observed, rows)]
    return results


def _run(
    one: Session, contracts: Sequence[Contract], values: Sequence[Mapping[str, Any]]
) -> dict[str, list[RuleResult]]:
    """Run the Checkpoint of the contracts, then look again at what it found broken, for counts and sample rows."""
    checkpoint = one.checkpoint(contracts, values)
    outcome = checkpoint.run()
    answers = {
        key.expectation_suite_identifier.name: {rule_name(rule.expectation_config): rule for rule in table.results}
        for key, table in outcome.run_results.items()
    }
    results: dict[str, list[RuleResult]] = {}
    for contract, definition in zip(contracts, checkpoint.validation_definitions, strict=True):
        of_table = results[contract.table] = []
        rules, found = [columns_rule(contract), *contract.rules], answers[contract.table]
        broken = [rule for rule in rules if not found[rule.name].success and not _exceptions(found[rule.name])]
        # Once a statement has failed, nothing can be asked.
        details = {} if one.connection.failure else _details(definition, broken)
        for rule in rules:
            if not _exceptions(found[rule.name]):
                success = bool(found[rule.name].success)
                of_table.append(_from_result(contract, rule, success, details.get(rule.name, {})))
        if failed := [rule for rule in rules if _exceptions(found[rule.name])]:
            of_table.append(_not_checked(contract, failed, found, one.connection.failure))
            break
    return results


def _details(definition: Any, rules: Sequence[Rule]) -> dict[str, dict[str, Any]]:
    """Count and sample what breaks the rules, by the rule's name."""
    details = {}
    if not rules:
        return details
    batch = definition.batch_definition.get_batch()
    expectations = {rule_name(one): one for one in definition.suite.expectations}
    for rule in rules:
        form = "COMPLETE" if rule.type == UNEXPECTED_ROWS else SAMPLES
        details[rule.name] = batch.validate(expectations[rule.name], result_format=form).result
    return details


def _not_checked(contract: Contract, failed: Sequence[Rule], found: Mapping[str, Any], failure: str) -> RuleResult:
    """Report the rule whose statement failed; those after it failed since the transaction was given up."""
    message = failure or "; ".join(_exceptions(found[failed[0].name]))
    asked = (rule for rule in failed if any(message in one for one in _exceptions(found[rule.name])))
    rule = next(asked, failed[0])
    observed = f"could not be checked: {message.strip()}"
    return RuleResult(contract.table, rule.name, "error", False, observed, [], rule.description)


def _exceptions(answer: Any) -> list[str]:
    """Collect the messages of the exceptions behind a result, in whichever of its two shapes they come."""
    information = answer.exception_info or {}
    raised = [one for one in [information, *information.values()] if isinstance(one, Mapping)]
    return [str(one.get("exception_message")) for one in raised if one.get("raised_exception")]


def _from_result(contract: Contract, rule: Rule, success: bool, details: Mapping[str, Any]) -> RuleResult:
    """Translate a result of Great Expectations."""
    if not details:
        return _result(contract, rule, success, _count_rows(0) if success else None, [])
    if rule.type == UNEXPECTED_ROWS:
        rows = details["details"]["unexpected_rows"]
        return _result(contract, rule, success, _count_rows(details["observed_value"]), rows)
    if "unexpected_count" in details:
        observed = f"{details['unexpected_count'] or 0:,} of {details['element_count']:,} rows"
        return _result(contract, rule, success, observed, details.get("unexpected_rows") or [])
    rows = details.get("details", {}).get("mismatched", [])
    return _result(contract, rule, success, str(details.get("observed_value")), rows)


def _result(contract: Contract, rule: Rule, success: bool, observed: str | None, rows: Sequence[Any]) -> RuleResult:
    return RuleResult(
        contract.table, rule.name, rule.severity, success, observed, [_plain(one) for one in rows], rule.description
    )


def _count_rows(count: int) -> str:
    return f"{count:,} " + ("row" if count == 1 else "rows")


def _plain(value: Any) -> Any:
    """Turn `value` into what JSON can hold: anything else, NaN and infinity too, becomes text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)
