"""Put right the times of runs that were recorded while the machine's clock was ahead."""

from datetime import datetime, timedelta

import duckdb

from oneclass import sql

MAX_SKEW = timedelta(minutes=1)  # by which the clocks of two machines with one home may differ
# Other times of such runs, by table. What is later than now becomes now.
RECORDED_TIMES = {
    "operations.runs": "ended_at",
    "operations.log_files": "ingested_at",
    "operations.arrivals": "arrived_at",
    "operations.promotions": "decided_at",
    "operations.model_settings": "searched_on",
}
NIGHT_TABLES = ("operations.nights", "diagnostics.nightly_exponents")


def correct_future_starts(connection: duckdb.DuckDBPyConnection, now: datetime) -> list[str]:
    """Move runs that start after `now` between the runs recorded before and after them; return a sentence for each.

    Args:
        now: in UTC, without a time zone.
    """
    ahead = connection.execute(sql.statement("runs/in_future"), {"now": now, "latest": now + MAX_SKEW}).fetchall()
    for run_id, _, corrected in ahead:
        connection.execute("update operations.runs set started_at = ? where run_id = ?", [corrected, run_id])
        for table in NIGHT_TABLES:
            connection.execute(f"update {table} set night = ? where run_id = ?", [corrected.date(), run_id])
    if ahead:
        for table, column in RECORDED_TIMES.items():
            connection.execute(f"update {table} set {column} = $now where {column} > $now", {"now": now})
    return [
        f"run {run_id}: was recorded as begun at {started:%Y-%m-%d %H:%M} UTC, which is in the future: the machine's "
        f"clock was ahead. Its start is corrected to {corrected:%Y-%m-%d %H:%M} UTC, between the runs beside it"
        for run_id, started, corrected in ahead
    ]
