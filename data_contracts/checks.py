"""Check a stage's contracts on the connection, and inside the transaction, that wrote the rows; and what it finds."""

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from oneclass import sql
from oneclass.data_contracts.contracts import COLUMNS, Contract, Rule, Severity, fill_in, rows_query

# Both are read when Great Expectations is loaded. It logs each rule that is broken, which the results have.
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
_logger = logging.getLogger("great_expectations")
_logger.addHandler(logging.NullHandler())
_logger.propagate = False

COLUMNS_RULE = "the table has the declared columns and no others, in this order, types and NOT NULL included"
MAX_SAMPLES = 20
# With these options core expectations return whole rows, and only as many as requested from DuckDB.
SAMPLES = {"result_format": "BASIC", "include_unexpected_rows": True, "partial_unexpected_count": MAX_SAMPLES}
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
    contracts: Sequence[Contract],
    parameters: Mapping[str, Any],
    known: Sequence[RuleResult] | None = None,
) -> list[RuleResult]:
    """Check contracts and leave the connection's transaction open as it was.

    The check sees uncommitted rows and temporary tables of the connection, and writes nothing. If the columns of a
    table differ from those declared, its other rules are skipped; the rules of an empty table that may be empty hold.
    If a statement fails, DuckDB aborts the transaction: the rule of that statement counts as broken and is the last
    result.

    Args:
        parameters: values that the contracts' rules refer to by name; others are ignored.
        known: the broken rules of an earlier check on the same rows, after which only columns are checked again.

    Returns:
        One result per rule, and one named `columns` per table, in the order of the files.

    Raises:
        ValueError: a contract needs a value that is not in `parameters`, or a rule has an unknown expectation type.
    """
    broken = {(one.contract, one.rule): one for one in known or ()}
    values = {contract.table: contract.values(parameters) for contract in contracts}
    existing = read_columns(connection)
    results: list[RuleResult] = []
    validator = None
    for contract in contracts:
        columns = _compare_columns(existing.get(contract.table, {}), contract)
        results.append(columns)
        if not columns.success:
            continue
        if known is not None or _holds_without_rows(connection, contract, values[contract.table]):
            held = (_rule_result(contract, rule, True, _count_rows(0)) for rule in contract.rules)
            results += [broken.get((one.contract, one.rule), one) for one in held]
            continue
        validator = validator or _Validator(connection)
        results += validator.validate(contract, values[contract.table])
        if validator.failure:
            break
    return results


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


def _compare_columns(existing: Mapping[str, str], contract: Contract) -> RuleResult:
    """Compare the columns of a table with those declared, since a query of an absent column would fail."""
    declared = {name: column.declared for name, column in contract.columns.items()}
    rows = [
        {"column_name": name, "declared": declared.get(name), "found": existing.get(name)}
        for name in {**declared, **existing}
        if declared.get(name) != existing.get(name)
    ]
    if not rows and list(existing) != list(declared):
        rows = [{"declared": list(declared), "found": list(existing)}]
    observed = _count_rows(len(rows)) if existing else f"the table {contract.table} does not exist"
    return RuleResult(contract.table, COLUMNS, "error", not rows, observed, rows, COLUMNS_RULE)


class _Validator:
    """Great Expectations on one connection, for one check."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        # Loaded here, since it takes longer than all checks of a small run.
        from oneclass.data_contracts import duckdb_source

        self._connection = duckdb_source.TransactionConnection(connection)
        self._source = duckdb_source.add_source(self._connection)

    @property
    def failure(self) -> str:
        """The message of the statement that failed, or empty."""
        return self._connection.failure

    def validate(self, contract: Contract, values: Mapping[str, Any]) -> list[RuleResult]:
        """Validate the rules of a table; those that are broken once more, for counts and sample rows."""
        import great_expectations as gx

        asset = self._source.add_query_asset(name=contract.table, query=rows_query(contract, values))
        batch = asset.get_batch(asset.build_batch_request())
        expectations = [build_expectation(contract, rule, values) for rule in contract.rules]
        suite = gx.ExpectationSuite(name=contract.table, expectations=expectations)
        found = batch.validate(suite, result_format="BOOLEAN_ONLY").results
        by_rule = {one.expectation_config.meta["rule"]: one for one in found}
        results = []
        for rule, expectation in zip(contract.rules, expectations, strict=True):
            one = by_rule[rule.name]
            if one.success or self.failure:
                if not _exceptions(one):
                    observed = _count_rows(0) if one.success else None
                    results.append(_rule_result(contract, rule, bool(one.success), observed))
                continue
            observed, rows = _sample(batch, rule, expectation)
            results.append(_rule_result(contract, rule, False, observed, rows))
        if self.failure:
            results.append(_report_failure(contract, by_rule, self.failure))
        return results


def _sample(batch: Any, rule: Rule, expectation: Any) -> tuple[str, list[Any]]:
    """Return what a broken rule found in words, and some of the rows that break it, the same ones every time."""
    from great_expectations.expectations import UnexpectedRowsExpectation

    found = batch.validate(expectation, result_format=SAMPLES).result
    if not rule.expect:
        query = f"select * from (\n{expectation.unexpected_rows_query}\n) order by all limit {MAX_SAMPLES}"
        rows = batch.validate(UnexpectedRowsExpectation(unexpected_rows_query=query), result_format="COMPLETE")
        return _count_rows(found["observed_value"]), rows.result["details"]["unexpected_rows"]
    if "unexpected_count" in found:
        observed = f"{found['unexpected_count'] or 0:,} of {found['element_count']:,} rows"
        return observed, found.get("unexpected_rows") or []
    return str(found.get("observed_value")), []


def build_expectation(contract: Contract, rule: Rule, values: Mapping[str, Any]) -> Any:
    """Build the expectation of a rule, with the rule's name in its `meta`.

    Args:
        values: the values of the contract's parameters.

    Raises:
        ValueError: the rule has an unknown expectation type, or arguments that its type does not take.
    """
    import great_expectations as gx

    from oneclass.data_contracts.duckdb_source import ExpectNoRows

    meta = {"rule": rule.name}
    try:
        if rule.expect:
            kind = "".join(word.capitalize() for word in f"expect_{rule.expect['type']}".split("_"))
            arguments = {name: value for name, value in rule.expect.items() if name != "type"}
            return getattr(gx.expectations, kind)(**arguments, meta=meta)
        query = fill_in(contract.rule_sql(rule), values)
        if rule.where is not None:
            query = f"select * from {{batch}} where {query}"
        if "{batch}" not in query:
            # The expectation prints a warning if the query does not name the batch.
            query = f"with batch as not materialized (select * from {{batch}}) select * from ({query})"
        # The expectation gives `{batch}` an alias in a query without a join.
        return ExpectNoRows(unexpected_rows_query=query.replace("{batch}", "(select * from {batch})"), meta=meta)
    except (AttributeError, ValueError) as error:
        raise ValueError(f"data_contracts/{contract.table}.yaml: rule {rule.name}: {error}") from error


def _report_failure(contract: Contract, by_rule: Mapping[str, Any], failure: str) -> RuleResult:
    """Report the rule whose statement failed; later rules failed only because the transaction was aborted."""
    failed = [rule for rule in contract.rules if _exceptions(by_rule[rule.name])]
    culprits = (rule for rule in failed if any(failure in text for text in _exceptions(by_rule[rule.name])))
    rule = next(culprits, failed[0])
    observed = f"could not be checked: {failure.strip()}"
    return RuleResult(contract.table, rule.name, "error", False, observed, [], rule.description)


def _exceptions(validation: Any) -> list[str]:
    """Return the messages of the exceptions in a result: its `exception_info` is one record, or records by metric."""
    information = validation.exception_info or {}
    records = [record for record in [information, *information.values()] if isinstance(record, Mapping)]
    return [str(record.get("exception_message")) for record in records if record.get("raised_exception")]


def _rule_result(
    contract: Contract, rule: Rule, success: bool, observed: str | None, rows: Sequence[Any] = ()
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
