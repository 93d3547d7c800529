"""Compare a run with the last evaluated run before it, for the report."""

from dataclasses import dataclass
from datetime import datetime

import duckdb
import polars as pl

from oneclass.tasks import protocols
from oneclass.tasks.stores import warehouse


@dataclass(frozen=True)
class PreviousRun:
    """The run that another run is compared with."""

    run_id: str
    started_at: datetime
    code_version: str


@dataclass(frozen=True)
class RunDiff:
    """The differences of two runs: the rows of the statements `metrics` and `settings` in `sql/changes.sql`."""

    previous: PreviousRun
    metrics: pl.DataFrame
    settings: pl.DataFrame


def diff_with_previous(connection: duckdb.DuckDBPyConnection, run_id: str) -> RunDiff | None:
    """Compare a run with the data set's last evaluated run before it; None if it is the first."""
    earlier = warehouse.select(connection, "changes/previous_run", run_id=run_id)
    if earlier.is_empty():
        return None
    previous = PreviousRun(**earlier.row(0, named=True))
    both = {"run_id": run_id, "previous_run_id": previous.run_id}
    metrics = warehouse.select(connection, "changes/metrics", **both, **protocols.main_metric_parameters())
    return RunDiff(previous, metrics, warehouse.select(connection, "changes/settings", **both))
