"""Run stages, one transaction each, committed if the stage's contracts hold; cache their results.

The cache stores the digest of all inputs of the tables (rows, settings, source, library versions) and the digest of the
tables. If the input digest matches and the tables still have the stored digest, the stage is not run. Tables that were
changed by hand are rewritten. Results without tables stay for every input digest.

The results of a stage's contracts are stored too, as Great Expectations takes seconds to load.
"""

import contextlib
import json
import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from oneclass import data_contracts, sql
from oneclass.data_contracts.checks import RuleResult, read_columns
from oneclass.data_contracts.contracts import fill_in, for_stage, load
from oneclass.models import fingerprint
from oneclass.tasks.stores import checksums, warehouse
from oneclass.tasks.stores.home import Home


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
        results = []
        try:
            yield connection
            results = _check_contracts(connection, name, {"run_id": run_id, **(parameters or {})})
            data_contracts.raise_if_broken(name, results)
            _record_results(connection, run_id, name, results)
            connection.commit()
        except BaseException as error:
            with contextlib.suppress(duckdb.Error):
                connection.rollback()
            if isinstance(error, data_contracts.ContractBroken):
                _record_results(connection, run_id, name, results)
            raise


def _check_contracts(connection: duckdb.DuckDBPyConnection, stage: str, values: Mapping[str, Any]) -> list[RuleResult]:
    """Check a stage's contracts, or return the results of an earlier check of the same rules on the same rows."""
    contracts, name, key = for_stage(stage), f"contracts of {stage}", _compute_key(connection, stage, values)
    query = "select result from operations.stage_results where stage = ? and made_from = ?"
    if found := connection.execute(query, [name, key]).fetchone():
        known = json.loads(found[0].replace(OF_RUN, values["run_id"]))
        return data_contracts.check(connection, contracts, values, [RuleResult(**one) for one in known])
    results = data_contracts.check(connection, contracts, values)
    broken = [asdict(one) for one in results if not one.success]
    # Events that are too late today may be in time tomorrow.
    if all(one["severity"] == "warning" for one in broken) and not (broken and "now()" in str(contracts)):
        row = [name, key, json.dumps(broken).replace(values["run_id"], OF_RUN)]
        connection.execute("insert into operations.stage_results values (?, ?, '', ?)", row)
    return results


def _compute_key(connection: duckdb.DuckDBPyConnection, stage: str, values: Mapping[str, Any]) -> str:
    """Digest all that a check of a stage's contracts depends on: the rules, and all rows of the tables that they name.

    Of a table whose contract selects a run's rows, rules read no others: their digest leaves out the run's id, and
    times that no rule names.
    """
    existing, digests = read_columns(connection), dict[str, str]()
    selections = {contract.table: contract.only for contract in load()}
    parts: list[Any] = [[checksums.library_version(name) for name in ("duckdb", "great_expectations")]]
    parts += [module.read_text() for module in sorted(Path(str(data_contracts.__file__)).parent.glob("*.py"))]
    for contract in for_stage(stage):
        questions = [(rule.expect, rule.where, rule.query) for rule in contract.rules]
        text = str([contract.only, contract.may_be_empty, contract.relations, questions])
        parts += [str(contract), {**contract.values(values), "run_id": ""}]
        for table, columns in existing.items():
            if table != contract.table and not ("." in table and table in text):
                continue
            rows = table
            if "run_id" in columns and selections.get(table, OF_RUN):
                times = [column for column, kind in columns.items() if "TIMESTAMP" in kind and column not in text]
                left_out = ", ".join(["run_id", *times])
                rows = f"(select * exclude ({left_out}) from {table} where {fill_in(OF_RUN, values)})"
            digests[rows] = digests.get(rows) or warehouse.table_digest(connection, rows)
            parts += [columns, digests[rows]]
    return checksums.compute_key(*parts)


def _record_results(
    connection: duckdb.DuckDBPyConnection, run_id: str, stage: str, results: Sequence[RuleResult]
) -> None:
    names = "contract", "rule", "severity", "success", "observed"
    rows = [
        {"run_id": run_id, "stage": stage}
        | {name: getattr(one, name) for name in names}
        | {"samples": json.dumps(one.samples, default=str)}
        for one in results
    ]
    warehouse.insert(connection, "operations.contract_results", pl.DataFrame(rows, infer_schema_length=None))


logger = logging.getLogger(__name__)

OF_RUN = "run_id = {run_id}"
LIBRARIES = ("duckdb", "numpy", "numba", "polars", "scipy")


class StageCache:
    """The cached result of a stage.

    Args:
        connection: inside the stage's transaction.
        stage: its name, which is that of its file in `sql/` if it writes tables.
        sources: the stage's modules, or folders of them.
        reads: a digest of the rows that it reads.
        parameters: settings and seed, as plain data.
        tables: the tables that it writes; none if it only decides something.

    Attributes:
        made_from: the digest of all inputs of the tables.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        stage: str,
        sources: Sequence[Path],
        *,
        reads: str,
        parameters: Mapping[str, Any],
        tables: Sequence[str],
    ) -> None:
        self._connection, self._stage, self._tables = connection, stage, tables
        modules = [one for source in sources for one in (sorted(source.glob("*.py")) if source.is_dir() else [source])]
        digests = [fingerprint.fingerprint_file(module) for module in modules]
        if tables:
            digests.append(sql.stage_digest(stage))
        versions = [checksums.library_version(name) for name in LIBRARIES]
        self.made_from = checksums.compute_key(stage, reads, dict(parameters), digests, versions)

    def lookup(self) -> dict[str, Any] | None:
        """Return the stage's stored result, or None if its inputs or tables have changed."""
        query = "select made, result from operations.stage_results where stage = ? and made_from = ?"
        found = self._connection.execute(query, [self._stage, self.made_from]).fetchone()
        if found is None:
            return None
        if found[0] != self._tables_digest():
            logger.warning("%s: %s changed since; made anew", self._stage, " or ".join(self._tables))
            return None
        kept = f"; {', '.join(self._tables)} stay as they are" if self._tables else ""
        logger.info("%s: nothing is new%s", self._stage, kept)
        return json.loads(found[1])

    def store(self, result: Mapping[str, Any]) -> None:
        """Store the stage's result, plain data, with the digests of its inputs and tables."""
        stale = "delete from operations.stage_results where stage = ? and (made_from = ? or ?)"
        self._connection.execute(stale, [self._stage, self.made_from, bool(self._tables)])
        row = [self._stage, self.made_from, self._tables_digest(), json.dumps(dict(result))]
        self._connection.execute("insert into operations.stage_results values (?, ?, ?, ?)", row)

    def _tables_digest(self) -> str:
        return "; ".join(warehouse.table_digest(self._connection, table) for table in self._tables)
