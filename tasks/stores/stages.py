"""Run stages: one transaction each, committed if the stage's contracts hold, whose results are recorded.

Great Expectations takes seconds to load, and milliseconds for a rule. What a check finds depends on the contract, the
values of its parameters, and the rows of the tables that it names, in the columns that it names, whichever run wrote
them. The digest of these is stored with the results, which are taken again while it stays the same. So rows that were
changed by hand are checked.
"""

import contextlib
import json
import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import duckdb
import polars as pl

from oneclass import data_contracts
from oneclass.data_contracts.checks import COLUMNS_RULE, RuleResult, read_columns
from oneclass.data_contracts.contracts import COLUMNS, fill_in
from oneclass.tasks.stores import checksums, warehouse
from oneclass.tasks.stores.home import Home

LIBRARIES = ("duckdb", "great_expectations")
OF_RUN = "run_id = {run_id}"


@contextlib.contextmanager
def run_stage(
    home: Home, run_id: str, name: str, parameters: dict[str, Any] | None = None
) -> Generator[duckdb.DuckDBPyConnection]:
    """Run the stage `name` in one transaction, committed if the stage's contracts hold at the end of the block.

    Every contract result is recorded in `operations.contract_results`, also when a breach rolls the stage back.

    Args:
        parameters: values that the contracts' rules refer to by name; the block may add to them.

    Raises:
        ContractBroken: a rule of severity `error` was broken; the warehouse is unchanged.
    """
    with warehouse.open_warehouse(home) as connection:
        connection.begin()
        results, keys = [], {}
        try:
            yield connection
            values = {"run_id": run_id, **(parameters or {})}
            keys = _compute_keys(connection, name, values)
            results = data_contracts.check(connection, name, values, _load_known(connection, name, keys))
            data_contracts.raise_if_broken(name, results)
            _record_results(connection, run_id, name, results, keys)
            connection.commit()
        except BaseException as error:
            with contextlib.suppress(duckdb.Error):
                connection.rollback()
            if isinstance(error, data_contracts.ContractBroken):
                _record_results(connection, run_id, name, results, keys)
            raise


def _compute_keys(connection: duckdb.DuckDBPyConnection, stage: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Digest all that the check of each contract of a stage depends on, by table."""
    columns, digests, keys = read_columns(connection), {}, {}
    versions = [checksums.library_version(name) for name in LIBRARIES]
    for contract in data_contracts.for_stage(stage):
        text = " ".join([*contract.texts, *(json.dumps(rule.expect) for rule in contract.rules)])
        words = set(re.findall(r"\w+", text))
        read = []
        for table in sorted(columns.keys() & {contract.table, *re.findall(r"\w+\.\w+", text)}):
            condition = contract.only or "" if table == contract.table else text
            is_of_run = OF_RUN in condition and "run_id" in columns[table]
            named = [f'"{name}"' for name in columns[table] if name in words and not (is_of_run and name == "run_id")]
            rows = f"(select {', '.join(named) or 'true'} from {table}"
            rows += f" where {fill_in(OF_RUN, values)})" if is_of_run else ")"
            digests[rows] = digests.get(rows) or warehouse.table_digest(connection, rows)
            read.append((table, columns[table], digests[rows]))
        given = {name: value for name, value in contract.values(values).items() if name != "run_id"}
        keys[contract.table] = checksums.compute_key(contract.model_dump(), given, read, versions)
    return keys


def _load_known(
    connection: duckdb.DuckDBPyConnection, stage: str, keys: Mapping[str, str]
) -> dict[str, list[RuleResult]]:
    """Load the results of checks with these keys by table; not if a rule of severity `error` was broken."""
    query = """select distinct on (checked, rule) checked, rule, severity, success, observed, samples
        from operations.contract_results
        where checked in (select unnest(?)) and (success or severity = 'warning')"""
    found: dict[str, dict[str, Any]] = {key: {} for key in keys.values()}
    for key, rule, *result, samples in connection.execute(query, [list(found)]).fetchall():
        found[key][rule] = *result, json.loads(samples)
    known = {}
    for contract in data_contracts.for_stage(stage):
        words = {COLUMNS: COLUMNS_RULE} | {rule.name: rule.description for rule in contract.rules}
        of_contract = found[keys[contract.table]]
        if of_contract.keys() == words.keys():
            results = [RuleResult(contract.table, name, *of_contract[name], text) for name, text in words.items()]
            # A rule that held on a row holds on it later; one that was broken may be so no more.
            if all(one.success for one in results) or "now()" not in str(contract.texts):
                known[contract.table] = results
    return known


def _record_results(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    stage: str,
    results: Sequence[RuleResult],
    keys: Mapping[str, str],
) -> None:
    names = "contract", "rule", "severity", "success", "observed"
    rows = [
        {"run_id": run_id, "stage": stage, "checked": keys[one.contract]}
        | {name: getattr(one, name) for name in names}
        | {"samples": json.dumps(one.samples, default=str)}
        for one in results
    ]
    warehouse.insert(connection, "operations.contract_results", pl.DataFrame(rows, infer_schema_length=None))
