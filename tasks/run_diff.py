"""Compare a run with the last evaluated run before it, for the report and the summary."""

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
    """The differences of two runs, each the rows of a statement in `sql/changes.sql`.

    Attributes:
        metrics: one row per ranked list and main metric; `place` is 0 for the protocol's first metric.
        settings: changed settings by dotted name; null if a run lacks it.
    """

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
    return RunDiff(
        previous,
        metrics=warehouse.select(connection, "changes/metrics", **both, **protocols.main_metric_parameters()),
        settings=warehouse.select(connection, "changes/settings", **both),
    )
