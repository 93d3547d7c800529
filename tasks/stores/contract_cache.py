"""Take the results of an earlier check of a contract if nothing that it depends on has changed.

Great Expectations takes seconds to load, and milliseconds for a rule. A check depends on the contract, the values of
its parameters, and the rows of every table that the contract names, in the columns that it names; the run that wrote
the rows does not matter. So rows that were damaged by hand are checked.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import duckdb

from oneclass import data_contracts
from oneclass.data_contracts import RuleResult
from oneclass.data_contracts.checks import read_columns
from oneclass.data_contracts.contracts import Contract
from oneclass.tasks.stores import checksums

LIBRARIES = ("duckdb", "great_expectations")
MAX_ROWS = 1_000_000  # of all tables of a contract, above which digests may take longer than they save
MAX_STORED = 16  # checks of a contract; a run makes some once per protocol or per model
_TABLE = re.compile(r"\b[a-z]+\.[a-z_]+\b")


def check(
    connection: duckdb.DuckDBPyConnection, stage: str, parameters: Mapping[str, Any]
) -> tuple[list[RuleResult], dict[str, str]]:
    """Check every contract that closes `stage` as `data_contracts.check` does, or take its stored results.

    Returns:
        The results, and the keys to store those of new checks by, by contract.
    """
    columns = read_columns(connection)
    contracts = {contract.table: contract for contract in data_contracts.for_stage(stage)}
    new = _compute_keys(connection, list(contracts.values()), parameters, columns)
    query = "select stage, result from operations.stage_results where made_from in (select unnest(?))"
    stored = dict(connection.execute(query, [list(new.values())]).fetchall())
    known = {}
    for table in [*new]:
        results = [RuleResult(**result) for result in json.loads(stored.get(_name(table), "[]"))]
        # A rule that held on a row holds on it later; one that was broken may be so no more.
        if results and (all(result.success for result in results) or not _reads_clock(contracts[table])):
            known[table] = results
            del new[table]
    return data_contracts.check(connection, stage, parameters, known, columns), new


def store(connection: duckdb.DuckDBPyConnection, results: Sequence[RuleResult], new: Mapping[str, str]) -> None:
    """Store results, none of them of a broken rule of severity `error`, by the keys that `check` returned."""
    of_tables = {table: [asdict(result) for result in results if result.contract == table] for table in new}
    rows = [[_name(table), new[table], "", json.dumps(found, default=str)] for table, found in of_tables.items()]
    if rows:
        connection.executemany("insert into operations.stage_results values (?, ?, ?, ?)", rows)
        connection.execute(
            "delete from operations.stage_results where rowid in (select rowid from operations.stage_results "
            "where starts_with(stage, ?) qualify row_number() over (partition by stage order by rowid desc) > ?)",
            [_name(""), MAX_STORED],
        )


def _reads_clock(contract: Contract) -> bool:
    return any("now()" in contract.rule_sql(rule) for rule in contract.rules)


def _name(table: str) -> str:
    return f"contract of {table}"


def _compute_keys(
    connection: duckdb.DuckDBPyConnection,
    contracts: Sequence[Contract],
    parameters: Mapping[str, Any],
    columns: Mapping[str, Mapping[str, str]],
) -> dict[str, str]:
    """Digest all that the check of each contract depends on, by table; not if a table is absent, or has too many rows.

    Two statements read the tables of all contracts: planning one takes longer than reading a small table.
    """
    run_id = parameters.get("run_id")
    inputs = [(contract, _find_rows(contract, columns)) for contract in contracts]
    counts = _aggregate(connection, [(rows, "count(*)") for _, read in inputs for rows, _ in read.values()], run_id)
    sizes = {rows: count for (rows, _), count in counts.items()}
    inputs = [
        (contract, read)
        for contract, read in inputs
        if read and sum(sizes[rows] for rows, _ in read.values()) <= MAX_ROWS
    ]
    nonempty = [source for _, read in inputs for source in read.values() if sizes[source[0]]]
    digests = _aggregate(connection, nonempty, run_id)
    versions = [checksums.library_version(name) for name in LIBRARIES]
    keys = {}
    for contract, read in inputs:
        given = {name: value for name, value in contract.values(parameters).items() if name != "run_id"}
        parts = [(table, columns[table], sizes[source[0]], digests.get(source)) for table, source in read.items()]
        keys[contract.table] = checksums.compute_key(contract.model_dump(), given, parts, versions)
    return keys


def _find_rows(contract: Contract, columns: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, str]]:
    """Return by table the rows that a check reads and the aggregate that digests them; nothing if a table is absent."""
    texts = [contract.only or "", str(contract.may_be_empty), *map(contract.rule_sql, contract.rules)]
    text = " ".join([*texts, *(json.dumps(rule.expect) for rule in contract.rules)])
    words, read = set(re.findall(r"\w+", text)), {}
    for table in dict.fromkeys([contract.table, *sorted(set(_TABLE.findall(text)) & columns.keys())]):
        kinds = columns.get(table, {})
        if not kinds:
            return {}
        of_run = "run_id" in kinds and "{run_id}" in text
        named = ", ".join(f'"{name}"' for name in kinds if name in words and not (of_run and name == "run_id"))
        hashes = f"hash({named or 0})"
        rows = f"{table} where run_id = $run_id" if of_run else table
        read[table] = rows, f"(bit_xor({hashes}), sum({hashes} & 1099511627775))"
    return read


def _aggregate(
    connection: duckdb.DuckDBPyConnection, aggregates: Sequence[tuple[str, str]], run_id: str | None
) -> dict[tuple[str, str], Any]:
    """Compute aggregates of rows, each given as (rows, aggregate), in one statement."""
    distinct = list(dict.fromkeys(aggregates))
    text = " union all ".join(f"select {n}, {value} from {rows}" for n, (rows, value) in enumerate(distinct))
    values = {"run_id": run_id} if "$run_id" in text else {}
    return {distinct[n]: value for n, value in connection.execute(text, values).fetchall()} if distinct else {}
