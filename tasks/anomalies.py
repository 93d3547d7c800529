"""Statistics of nightly batches and their usual ranges: `operations.nights` and `diagnostics.nightly_exponents`.

A night is a run that reads the landing folder; runs of one date (UTC) are one night, so that a repeated night is
counted once. The baseline has completed nights only. The contracts of the two tables set how far a figure may lie from
its usual range.
"""

import logging
from datetime import date, datetime
from typing import Any

import duckdb
import polars as pl

from oneclass import sql
from oneclass.data_contracts import for_stage
from oneclass.tasks.stores import warehouse

logger = logging.getLogger(__name__)

BASELINE_BATCHES = 14  # nights that a night is compared with
MIN_WEEKDAY_BATCHES = 4  # nights of a weekday that give it a level of its own
HISTORY_BATCHES = 56  # nights in which these are searched
MIN_BASELINE_BATCHES = 7  # with fewer nights there is no usual range
ALARM_RULES = ("users_spread", "rejects_few")  # what a person should hear of at once


def record_batch_stats(connection: duckdb.DuckDBPyConnection, run_id: str) -> None:
    """Add the statistics of the night of `run_id` to `operations.nights`, after its logs are in `raw.events`.

    The first batch has no baseline (it may be a full backfill), so only its counts are recorded.
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

    They are compared with those of other nights if this run is a night.
    """
    started_at, _ = _run_start(connection, run_id)
    is_night = connection.execute("from operations.nights where run_id = ? limit 1", [run_id]).fetchone() is not None
    connection.execute(sql.statement("nights/exponents"))
    least = MIN_BASELINE_BATCHES if is_night else BASELINE_BATCHES + 1
    _compare_with_baseline(connection, "diagnostics.nightly_exponents", run_id, started_at.date(), least)


def load_anomalies(connection: duckdb.DuckDBPyConnection, run_id: str) -> list[str]:
    """List the unusual figures of a run's night, such as `events 812, usually from 1,400 to 2,100 (volume_usual)`.

    Those of `ALARM_RULES` are left out.
    """
    unusual = warehouse.select(connection, "nights/unusual", run_id=run_id)
    unusual = unusual.filter(~pl.col("rule").is_in(ALARM_RULES))
    return [f"{_describe_anomaly(row)} ({row['rule']})" for row in unusual.iter_rows(named=True)]


def log_anomalies(connection: duckdb.DuckDBPyConnection, run_id: str, stage: str) -> list[str]:
    """Log the rules that a run's night broke at the end of `stage`, with the figures and the rules' descriptions.

    Returns:
        The same sentences for `ALARM_RULES`, which are not logged.
    """
    unusual, alarms = warehouse.select(connection, "nights/unusual", run_id=run_id), []
    for contract in for_stage(stage):
        for rule in contract.rules:
            rows = unusual.filter(pl.col("contract") == contract.table, pl.col("rule") == rule.name)
            if len(rows):
                figures = "; ".join(map(_describe_anomaly, rows.iter_rows(named=True)))
                sentence = f"an unusual night ({rule.name}): {figures}. As a rule, {rule.description}"
                if rule.name in ALARM_RULES:
                    alarms.append(sentence)
                else:
                    logger.warning("%s", sentence)
    return alarms


def _describe_anomaly(row: dict[str, Any]) -> str:
    bounds = [(word, row[name]) for word, name in (("from", "usual_from"), ("to", "usual_to")) if row[name] is not None]
    usually = " ".join(f"{word} {_format_number(value)}" for word, value in bounds)
    return f"{row['figure']} {_format_number(row['value'])}" + (f", usually {usually}" if usually else "")


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _run_start(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[datetime, int]:
    return warehouse.select(connection, "nights/run_start", run_id=run_id).row(0)


def _compare_with_baseline(
    connection: duckdb.DuckDBPyConnection, table: str, run_id: str, night: date, least: int
) -> None:
    connection.execute(f"delete from {table} where run_id = ?", [run_id])  # rows of an earlier try of the stage
    values = {
        "run_id": run_id,
        "night": night,
        "nights": BASELINE_BATCHES,
        "weekdays": MIN_WEEKDAY_BATCHES,
        "history": HISTORY_BATCHES,
    }
    connection.execute(sql.statement("nights/usual", table=table), {**values, "least": least})
