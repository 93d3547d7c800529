"""Check a stage's contracts on the connection, and inside the transaction, that wrote the rows; and what it finds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from oneclass import sql
from oneclass.data_contracts.contracts import Contract, Rule, Severity, fill_in, for_stage, rows_query
from oneclass.data_contracts.session import Session, columns_rule, rule_name, session

# With these options core expectations return whole rows, and only as many as requested from DuckDB.
SAMPLES = {"result_format": "BASIC", "include_unexpected_rows": True, "partial_unexpected_count": 20}
MAX_SHOWN_SAMPLES = 5


@dataclass(frozen=True)
class RuleResult:
    """The result of one rule.

    Attributes:
        contract: the table, `schema.table`.
        rule: the rule's name in the contract's file.
        observed: the observed value or number of rows, in words; None if unknown.
        samples: some of the rows, or values, that break the rule.
        description: the rule in a sentence.
    """

    contract: str
    rule: str
    severity: Severity
    success: bool
    observed: str | None
    samples: list[Any] = field(default_factory=list)
    description: str = ""


class ContractBroken(Exception):
    """A rule of severity `error` does not hold. The message names it, shows rows, and says what to do.

    Args:
        explanation: what the stage knows of the cause; the message begins with it.
    """

    exit_status = 1

    def __init__(self, stage: str, broken: Sequence[RuleResult], explanation: str = "") -> None:
        self.stage = stage
        self.broken = list(broken)
        described = [_describe(stage, result) for result in broken]
        super().__init__("\n".join([*([explanation, ""] if explanation else []), *described, _advice(stage, broken)]))


def check(
    connection: duckdb.DuckDBPyConnection,
    stage: str,
    parameters: Mapping[str, Any] | None = None,
    known: Mapping[str, list[RuleResult]] | None = None,
    columns: Mapping[str, Mapping[str, str]] | None = None,
) -> list[RuleResult]:
    """Check every contract that closes `stage` and leave the connection's transaction open as it was.

    The check sees uncommitted rows and temporary tables of the connection, and writes nothing. If the columns of a
    table differ from those declared, its other rules are skipped; the rules of an empty table that may be empty hold.
    If a statement fails, DuckDB aborts the transaction: the rule of that statement counts as broken and is the last
    result.

    Args:
        parameters: values that the contracts' rules refer to by name; others are ignored.
        known: results to return for these tables instead of checking them.
        columns: the result of `read_columns`, if it was read in the same transaction.

    Returns:
        One result per rule, and one named `columns` per table, in the order of the files.

    Raises:
        ValueError: a contract needs a value that is not in `parameters`, or a rule has an unknown expectation type.
    """
    contracts, of_tables = for_stage(stage), dict(known or {})
    unknown = [contract for contract in contracts if contract.table not in of_tables]
    for result in check_contracts(connection, unknown, parameters or {}, columns) if unknown else []:
        of_tables.setdefault(result.contract, []).append(result)
    return [result for contract in contracts for result in of_tables.get(contract.table, [])]


def check_contracts(
    connection: duckdb.DuckDBPyConnection,
    contracts: Sequence[Contract],
    parameters: Mapping[str, Any],
    columns: Mapping[str, Mapping[str, str]] | None = None,
) -> list[RuleResult]:
    """Check any contracts, as `check` does for a stage."""
    values = {contract.table: contract.values(parameters) for contract in contracts}
    columns = columns or read_columns(connection)
    results = _compare_columns(columns, contracts)
    for contract in contracts:
        ordered = list(columns.get(contract.table, {})) == list(contract.columns)
        if (
            contract.table not in results
            and ordered
            and _holds_without_rows(connection, contract, values[contract.table])
        ):
            rules = [columns_rule(contract), *contract.rules]
            results[contract.table] = [_convert_result(contract, rule, True, {}) for rule in rules]
    unchecked = [contract for contract in contracts if contract.table not in results]
    if unchecked:
        with session(connection) as gx_session:
            results |= _run_checkpoint(gx_session, unchecked, [values[contract.table] for contract in unchecked])
    combined: list[RuleResult] = []
    for contract in contracts:
        combined += results.get(contract.table, [])
    return combined


def read_columns(connection: duckdb.DuckDBPyConnection) -> dict[str, dict[str, str]]:
    """Return the columns of every table in their order, name -> type."""
    existing: dict[str, dict[str, str]] = {}
    for table, column, kind in connection.execute(sql.statement("data_contracts/columns")).fetchall():
        existing.setdefault(table, {})[column] = kind
    return existing


def _holds_without_rows(connection: duckdb.DuckDBPyConnection, contract: Contract, values: Mapping[str, Any]) -> bool:
    """Return whether a contract has no rows to check and may have none.

    Most tables of a stage are empty in most runs, and Great Expectations takes milliseconds per rule.
    """
    if not contract.may_be_empty:
        return False
    # A count, since DuckDB 2.0.0 can hang on `limit 1` over a complex query.
    if connection.execute(f"select count(*) from ({rows_query(contract, values)})").fetchall() != [(0,)]:
        return False
    condition = fill_in(str(contract.may_be_empty), values)
    return connection.execute(f"select 1 where {condition}").fetchone() is not None


def _compare_columns(
    existing: Mapping[str, Mapping[str, str]], contracts: Sequence[Contract]
) -> dict[str, list[RuleResult]]:
    """Report the tables whose columns differ from those declared, since a query of an absent column would fail."""
    results = {}
    for contract in contracts:
        declared = {name: column.declared for name, column in contract.columns.items()}
        columns = existing.get(contract.table, {})
        rows = [
            {"column_name": name, "declared": declared.get(name), "found": columns.get(name)}
            for name in {**declared, **columns}
            if declared.get(name) != columns.get(name)
        ]
        if rows:
            observed = _count_rows(len(rows)) if columns else f"the table {contract.table} does not exist"
            results[contract.table] = [_rule_result(contract, columns_rule(contract), False, observed, rows)]
    return results


def _run_checkpoint(
    gx_session: Session, contracts: Sequence[Contract], values: Sequence[Mapping[str, Any]]
) -> dict[str, list[RuleResult]]:
    """Run the Checkpoint of the contracts, then validate broken rules again for counts and sample rows."""
    checkpoint = gx_session.checkpoint(contracts, values)
    outcome = checkpoint.run()
    validations = {
        key.expectation_suite_identifier.name: {rule_name(rule.expectation_config): rule for rule in table.results}
        for key, table in outcome.run_results.items()
    }
    results: dict[str, list[RuleResult]] = {}
    for contract, definition in zip(contracts, checkpoint.validation_definitions, strict=True):
        table_results = results[contract.table] = []
        rules, by_rule = [columns_rule(contract), *contract.rules], validations[contract.table]
        broken = [rule for rule in rules if not by_rule[rule.name].success and not _exceptions(by_rule[rule.name])]
        # After a statement has failed, DuckDB answers no further query.
        details = {} if gx_session.connection.failure else _load_details(definition, broken)
        for rule in rules:
            if not _exceptions(by_rule[rule.name]):
                success = bool(by_rule[rule.name].success)
                table_results.append(_convert_result(contract, rule, success, details.get(rule.name, {})))
        if failed := [rule for rule in rules if _exceptions(by_rule[rule.name])]:
            table_results.append(_report_failure(contract, failed, by_rule, gx_session.connection.failure))
            break
    return results


def _load_details(definition: Any, rules: Sequence[Rule]) -> dict[str, dict[str, Any]]:
    """Count and sample the rows that break each rule, by the rule's name."""
    details = {}
    if not rules:
        return details
    batch = definition.batch_definition.get_batch()
    expectations = {rule_name(expectation): expectation for expectation in definition.suite.expectations}
    for rule in rules:
        result_format = SAMPLES if rule.expect else "COMPLETE"
        details[rule.name] = batch.validate(expectations[rule.name], result_format=result_format).result
    return details


def _report_failure(contract: Contract, failed: Sequence[Rule], by_rule: Mapping[str, Any], failure: str) -> RuleResult:
    """Report the rule whose statement failed; later rules failed only because the transaction was aborted."""
    message = failure or "; ".join(_exceptions(by_rule[failed[0].name]))
    culprits = (rule for rule in failed if any(message in text for text in _exceptions(by_rule[rule.name])))
    rule = next(culprits, failed[0])
    observed = f"could not be checked: {message.strip()}"
    return RuleResult(contract.table, rule.name, "error", False, observed, [], rule.description)


def _exceptions(validation: Any) -> list[str]:
    """Return the messages of the exceptions in a result: its `exception_info` is one record, or records by metric."""
    information = validation.exception_info or {}
    records = [record for record in [information, *information.values()] if isinstance(record, Mapping)]
    return [str(record.get("exception_message")) for record in records if record.get("raised_exception")]


def _convert_result(contract: Contract, rule: Rule, success: bool, details: Mapping[str, Any]) -> RuleResult:
    """Convert a result of Great Expectations."""
    if not details:
        return _rule_result(contract, rule, success, _count_rows(0) if success else None, [])
    if not rule.expect:
        rows = details["details"]["unexpected_rows"]
        return _rule_result(contract, rule, success, _count_rows(details["observed_value"]), rows)
    if "unexpected_count" in details:
        observed = f"{details['unexpected_count'] or 0:,} of {details['element_count']:,} rows"
        return _rule_result(contract, rule, success, observed, details.get("unexpected_rows") or [])
    rows = details.get("details", {}).get("mismatched", [])
    return _rule_result(contract, rule, success, str(details.get("observed_value")), rows)


def _rule_result(
    contract: Contract, rule: Rule, success: bool, observed: str | None, rows: Sequence[Any]
) -> RuleResult:
    return RuleResult(
        contract.table, rule.name, rule.severity, success, observed, [_to_json(row) for row in rows], rule.description
    )


def _count_rows(count: int) -> str:
    return f"{count:,} " + ("row" if count == 1 else "rows")


def _to_json(value: Any) -> Any:
    """Convert a value to JSON types; all others, NaN and infinity included, become text."""
    if isinstance(value, Mapping):
        return {str(name): _to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def raise_if_broken(stage: str, results: Sequence[RuleResult]) -> None:
    """Raise an error if a rule of severity `error` does not hold; a broken `warning` is only recorded.

    Raises:
        ContractBroken: with all broken rules.
    """
    broken = [result for result in results if not result.success and result.severity == "error"]
    if broken:
        raise ContractBroken(stage, broken)


def _describe(stage: str, result: RuleResult) -> str:
    lines = [f"{stage}: the contract of {result.contract} is broken: {result.rule}: {result.description}"]
    if result.observed:
        lines.append(f"  found: {result.observed}")
    lines += [f"  sample: {_format_row(sample)}" for sample in result.samples[:MAX_SHOWN_SAMPLES]]
    return "\n".join(lines)


def _format_row(sample: Any) -> str:
    if isinstance(sample, dict):
        return ", ".join(f"{name} = {value!r}" for name, value in sample.items())
    return repr(sample)


def _advice(stage: str, broken: Sequence[RuleResult]) -> str:
    tables = ", ".join(f"data_contracts/{table}.yaml" for table in dict.fromkeys(r.contract for r in broken))
    return (
        f"The stage {stage} was rolled back; the warehouse and the publication are unchanged. "
        f"Correct the log or the settings that the rows come from and run again; "
        f"the rules and their reasons are in {tables}."
    )
