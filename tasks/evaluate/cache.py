"""Evaluations are kept: a run whose fits and split are those of an earlier one takes that run's rows.

As the earlier rows are copied, a night with nothing new costs a query a table; its contracts are checked all the same.
Rows that were changed or removed since are not taken.
"""

import hashlib
import importlib.metadata
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from oneclass import sql
from oneclass.models import fingerprint
from oneclass.tasks.evaluate.tables import LEAVE_ONE_OUT_TABLES, PROTOCOL_TABLES, delete_evaluation
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.stage_cache import LIBRARIES, table_digest

logger = logging.getLogger(__name__)


def evaluation_digest(home: Home, protocol: str, matrices_digest: str, fit_digests: Mapping[str, str]) -> str:
    """The digest of all that an evaluation depends on, the order of the models among it, and the demo's truth."""
    source = [fingerprint.fingerprint_file(file) for file in sorted(Path(__file__).parent.glob("*.py"))]
    versions = [importlib.metadata.version(name) for name in LIBRARIES]
    record = home.truth / "settings.json"  # which has the sha256 of every file of the truth
    truth = record.read_text(encoding="utf-8") if record.is_file() else ""
    parts = [
        protocol,
        matrices_digest,
        list(fit_digests.items()),
        source,
        sql.stage_digest("evaluate"),
        versions,
        truth,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class CachedEvaluation(NamedTuple):
    """An evaluation that stands."""

    run_id: str
    result: dict[str, Any]


def find_cached_evaluation(home: Home, run_id: str, protocol: str, digest: str) -> CachedEvaluation | None:
    """The newest evaluation by another run that was made from the same and is as it was made."""
    with warehouse.open_warehouse(home) as connection:  # which brings an older warehouse's tables up to date
        found = warehouse.select(connection, "evaluate/earlier", made_from=digest, protocol=protocol, run_id=run_id)
        for one in found.iter_rows(named=True):
            if one["rows"] == _rows_digest(connection, one["run_id"], protocol):
                return CachedEvaluation(one["run_id"], json.loads(one["result"]))
            logger.warning("%s: the evaluation by run %s changed since; made anew", protocol, one["run_id"])
    return None


def copy_cached_rows(connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str, cached: str) -> None:
    """Give a run the rows that an earlier run has of a protocol."""
    delete_evaluation(connection, run_id, protocol)
    for table, rows in _run_relations(cached, protocol).items():
        connection.execute(f"insert into evaluation.{table} by name select ? as run_id, * from {rows}", [run_id])
    logger.info("%s: nothing is new; the evaluation by run %s is taken", protocol, cached)


def cache_evaluation(
    connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str, digest: str, result: Mapping[str, Any]
) -> None:
    """Note what this run's rows of a protocol were made from."""
    connection.execute("delete from operations.evaluations where run_id = ? and protocol = ?", [run_id, protocol])
    row = [run_id, protocol, digest, _rows_digest(connection, run_id, protocol), json.dumps(dict(result))]
    connection.execute("insert into operations.evaluations values (?, ?, ?, ?, ?)", row)


def _run_relations(run_id: str, protocol: str) -> dict[str, str]:
    """By table, a run's rows of a protocol as a relation without their run."""
    run_id = run_id.replace("'", "''")
    rows = {table: f"run_id = '{run_id}' and protocol = '{protocol}'" for table in PROTOCOL_TABLES}
    if protocol == "leave_one_out":
        rows |= dict.fromkeys(LEAVE_ONE_OUT_TABLES, f"run_id = '{run_id}'")
    return {table: f"(select * exclude run_id from evaluation.{table} where {of})" for table, of in rows.items()}


def _rows_digest(connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str) -> str:
    return "; ".join(table_digest(connection, rows) for rows in _run_relations(run_id, protocol).values())
