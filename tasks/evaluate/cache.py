"""Cache of evaluations: a run with the fits and split of an earlier run copies that run's rows.

So a night with nothing new costs one query per table. Contracts are checked all the same. Rows that have been changed
or removed since are not copied.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from oneclass import sql
from oneclass.models import fingerprint
from oneclass.tasks.evaluate.tables import LEAVE_ONE_OUT_TABLES, PROTOCOL_TABLES, delete_evaluation
from oneclass.tasks.stores import checksums, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.stage_cache import LIBRARIES, table_digest

logger = logging.getLogger(__name__)


def evaluation_digest(home: Home, protocol: str, judged: Sequence[tuple[str, Mapping[str, str]]], metrics: str) -> str:
    """Return the digest of all an evaluation depends on: the models in their order, and the demo's truth, too.

    Args:
        judged: the digests of the splits and of the fits on each.
        metrics: the digest of further metrics.
    """
    source = [fingerprint.fingerprint_file(file) for file in sorted(Path(__file__).parent.glob("*.py"))]
    versions = [checksums.library_version(name) for name in LIBRARIES]
    record = home.truth / "settings.json"  # which has the sha256 of every file of the truth
    truth = record.read_text(encoding="utf-8") if record.is_file() else ""
    splits = [(digest, list(fits.items())) for digest, fits in judged]
    return checksums.compute_key(protocol, splits, metrics, source, sql.stage_digest("evaluate"), versions, truth)


class CachedEvaluation(NamedTuple):
    """An earlier evaluation whose rows are unchanged."""

    run_id: str
    result: dict[str, Any]


def find_cached_evaluation(
    connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str, digest: str
) -> CachedEvaluation | None:
    """Find the newest evaluation with this digest by another run whose rows are unchanged."""
    earlier = warehouse.select(connection, "evaluate/earlier", made_from=digest, protocol=protocol, run_id=run_id)
    for row in earlier.iter_rows(named=True):
        if row["rows"] == _rows_digest(connection, row["run_id"], protocol):
            return CachedEvaluation(row["run_id"], json.loads(row["result"]))
        logger.warning("%s: the evaluation by run %s changed since; made anew", protocol, row["run_id"])
    return None


def copy_cached_rows(connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str, cached: str) -> None:
    """Copy an earlier run's rows of a protocol to this run."""
    delete_evaluation(connection, run_id, protocol)
    for table, rows in _run_relations(cached, protocol).items():
        connection.execute(f"insert into evaluation.{table} by name select ? as run_id, * from {rows}", [run_id])
    logger.info("%s: nothing is new; the evaluation by run %s is taken", protocol, cached)


def cache_evaluation(
    connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str, digest: str, result: Mapping[str, Any]
) -> None:
    """Record the digest and result of this run's rows of a protocol."""
    connection.execute("delete from operations.evaluations where run_id = ? and protocol = ?", [run_id, protocol])
    row = [run_id, protocol, digest, _rows_digest(connection, run_id, protocol), json.dumps(dict(result))]
    connection.execute("insert into operations.evaluations values (?, ?, ?, ?, ?)", row)


def _run_relations(run_id: str, protocol: str) -> dict[str, str]:
    """Return SQL relations of a run's rows of a protocol, without the run, by table."""
    run_id = run_id.replace("'", "''")
    rows = {table: f"run_id = '{run_id}' and protocol = '{protocol}'" for table in PROTOCOL_TABLES}
    if protocol == "leave_one_out":
        rows |= dict.fromkeys(LEAVE_ONE_OUT_TABLES, f"run_id = '{run_id}'")
    return {table: f"(select * exclude run_id from evaluation.{table} where {of})" for table, of in rows.items()}


def _rows_digest(connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str) -> str:
    return "; ".join(table_digest(connection, rows) for rows in _run_relations(run_id, protocol).values())
