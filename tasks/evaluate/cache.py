"""Cache of evaluations: a run with the fits and split of an earlier run copies that run's rows.

So a night with nothing new costs one query per table. Contracts are checked all the same. Rows that have been changed
or removed since are not copied.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from oneclass import sql
from oneclass.tasks.evaluate.tables import LEAVE_ONE_OUT_TABLES, PROTOCOL_TABLES, delete_evaluation
from oneclass.tasks.protocols import FittedSplit
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.stage_cache import StageCache
from oneclass.tasks.stores.warehouse import table_digest

logger = logging.getLogger(__name__)


def open_cache(
    connection: duckdb.DuckDBPyConnection, home: Home, protocol: str, judged: Sequence[FittedSplit], metrics: str
) -> StageCache:
    """Return the cache entry of an evaluation of these models in their order.

    Args:
        judged: the digests of the splits and of the fits on each.
        metrics: the digest of further metrics.
    """
    record = home.truth / "settings.json"  # of the demo, which has the sha256 of every file of the truth
    truth = record.read_text(encoding="utf-8") if record.is_file() else ""
    splits = [(digest, list(fits.items())) for digest, fits in judged]
    parameters = {"splits": splits, "metrics": metrics, "truth": truth, "statements": sql.stage_digest("evaluate")}
    sources = [Path(__file__).parent]
    return StageCache(connection, f"evaluate {protocol}", sources, reads="", parameters=parameters, tables=())


def find_earlier(connection: duckdb.DuckDBPyConnection, cache: StageCache, protocol: str) -> dict[str, Any] | None:
    """Find the latest evaluation with this cache entry: its `run_id` and `evaluated`; None if its rows have changed."""
    earlier = cache.lookup()
    if earlier and earlier["rows"] != _rows_digest(connection, earlier["run_id"], protocol):
        logger.warning("%s: the evaluation by run %s changed since; made anew", protocol, earlier["run_id"])
        return None
    return earlier


def copy_rows(connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str, earlier: str) -> None:
    """Copy an earlier run's rows of a protocol to this run, unless it is an earlier try of this run."""
    if earlier != run_id:
        delete_evaluation(connection, run_id, protocol)
        for table, rows in _run_relations(earlier, protocol).items():
            connection.execute(f"insert into evaluation.{table} by name select ? as run_id, * from {rows}", [run_id])


def store_evaluation(
    connection: duckdb.DuckDBPyConnection, cache: StageCache, run_id: str, protocol: str, evaluated: Mapping[str, Any]
) -> None:
    """Store the result and the digest of this run's rows of a protocol."""
    rows = _rows_digest(connection, run_id, protocol)
    cache.store({"run_id": run_id, "rows": rows, "evaluated": dict(evaluated)})


def _run_relations(run_id: str, protocol: str) -> dict[str, str]:
    """Return SQL relations of a run's rows of a protocol, without the run, by table."""
    run_id = run_id.replace("'", "''")
    rows = {table: f"run_id = '{run_id}' and protocol = '{protocol}'" for table in PROTOCOL_TABLES}
    if protocol == "leave_one_out":
        rows |= dict.fromkeys(LEAVE_ONE_OUT_TABLES, f"run_id = '{run_id}'")
    return {table: f"(select * exclude run_id from evaluation.{table} where {of})" for table, of in rows.items()}


def _rows_digest(connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str) -> str:
    return "; ".join(table_digest(connection, rows) for rows in _run_relations(run_id, protocol).values())
