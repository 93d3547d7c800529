"""What a night brought, beside what is usual: the rows of `operations.nights` and `diagnostics.nightly_exponents`.

A night is a run that reads the landing folder; runs of one date (UTC) are one night, so that a night that is run again
is counted once. Only nights that came to their end are compared with. How far from the usual a figure may lie is said
by the contracts of the two tables.
"""

import logging
from datetime import date, datetime

import duckdb
import polars as pl

from oneclass import sql
from oneclass.data_contracts import for_stage
from oneclass.tasks.stores import warehouse

logger = logging.getLogger(__name__)

BASELINE_BATCHES = 14  # that tonight is compared with
MIN_WEEKDAY_BATCHES = 4  # of a weekday, from which on it has a level of its own
HISTORY_BATCHES = 56  # nights in which these are looked for
MIN_BASELINE_BATCHES = 7  # nights without which nothing is usual


def record_batch_stats(connection: duckdb.DuckDBPyConnection, run_id: str) -> None:
    """Add what the night of `run_id` brought to `operations.nights`, once its logs are in `raw.events`.

    The first night, whose log may be that of all years, is counted and no more: nothing is there to hold it against.
    """
    started_at, before = _run_start(connection, run_id)
    values = {"run_id": run_id, "night": started_at.date()}
    connection.execute(sql.statement("nights/files"), values)
    connection.execute(sql.statement("nights/counts"), {"started_at": started_at})
    if before and warehouse.fetch_row(connection, "select count(*) from night_files") > (0,):
        connection.execute(
            sql.statement("nights/earlier_files"), {"night": started_at.date(), "nights": BASELINE_BATCHES}
        )
        for statement in ("nights/events", "nights/earlier_events", "nights/figures"):
            connection.execute(sql.statement(statement))
    _compare_with_baseline(connection, "operations.nights", run_id, started_at.date(), MIN_BASELINE_BATCHES)


def record_exponents(connection: duckdb.DuckDBPyConnection, run_id: str) -> None:
    """Add the exponents of `diagnostics.power_law_fits` to `diagnostics.nightly_exponents`.

    They are compared with other nights' where this run is one.
    """
    started_at, _ = _run_start(connection, run_id)
    is_night = connection.execute("from operations.nights where run_id = ? limit 1", [run_id]).fetchone() is not None
    connection.execute(sql.statement("nights/exponents"))
    least = MIN_BASELINE_BATCHES if is_night else BASELINE_BATCHES + 1
    _compare_with_baseline(connection, "diagnostics.nightly_exponents", run_id, started_at.date(), least)


def load_anomalies(connection: duckdb.DuckDBPyConnection, run_id: str) -> list[str]:
    """Every figure of a run's night that was warned of: `events 812, usually from 1,400 to 2,100 (volume_usual)`."""
    found = warehouse.select(connection, "nights/unusual", run_id=run_id)
    return [f"{_describe_anomaly(row)} ({row['rule']})" for row in found.iter_rows(named=True)]


def log_anomalies(connection: duckdb.DuckDBPyConnection, run_id: str, stage: str) -> None:
    """Log the rules that a run's night broke at the end of `stage`: the figures, and what to look at."""
    found = warehouse.select(connection, "nights/unusual", run_id=run_id)
    for contract in for_stage(stage):
        for rule in contract.rules:
            rows = found.filter(pl.col("contract") == contract.table, pl.col("rule") == rule.name)
            if len(rows):
                figures = "; ".join(map(_describe_anomaly, rows.iter_rows(named=True)))
                logger.warning("an unusual night (%s): %s. As a rule, %s", rule.name, figures, rule.description)


def _describe_anomaly(row: dict) -> str:
    ends = [(word, row[end]) for word, end in (("from", "usual_from"), ("to", "usual_to")) if row[end] is not None]
    usually = " ".join(f"{word} {_format_number(value)}" for word, value in ends)
    return f"{row['figure']} {_format_number(row['value'])}" + (f", usually {usually}" if usually else "")


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _run_start(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[datetime, int]:
    return warehouse.select(connection, "nights/run_start", run_id=run_id).row(0)


def _compare_with_baseline(
    connection: duckdb.DuckDBPyConnection, table: str, run_id: str, night: date, least: int
) -> None:
    connection.execute(f"delete from {table} where run_id = ?", [run_id])  # a stage that is tried once more
    values = {
        "run_id": run_id,
        "night": night,
        "nights": BASELINE_BATCHES,
        "weekdays": MIN_WEEKDAY_BATCHES,
        "history": HISTORY_BATCHES,
    }
    connection.execute(sql.statement("nights/usual", table=table), {**values, "least": least})
