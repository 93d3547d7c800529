"""What changed between a run and the last evaluated run before it; the report and the summary show it."""

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
        metrics: one row for each list and main metric; `place` is 0 for the metric that judges the protocol.
        log_files: ingested since.
        rules: of contracts, met by one of the two only.
        settings: by their dotted names; null where a run does not have one.
    """

    previous: PreviousRun
    metrics: pl.DataFrame
    log_files: pl.DataFrame
    rules: pl.DataFrame
    settings: pl.DataFrame


def diff_with_previous(connection: duckdb.DuckDBPyConnection, run_id: str) -> RunDiff | None:
    """Compare a run with the last evaluated one of its data set before it; None if it is the first."""
    found = warehouse.select(connection, "changes/previous_run", run_id=run_id)
    if found.is_empty():
        return None
    previous = PreviousRun(**found.row(0, named=True))
    both = {"run_id": run_id, "previous_run_id": previous.run_id}
    return RunDiff(
        previous,
        metrics=warehouse.select(connection, "changes/metrics", **both, **protocols.main_metric_parameters()),
        log_files=warehouse.select(connection, "changes/log_files", previous_run_id=previous.run_id),
        rules=warehouse.select(connection, "changes/rules", **both),
        settings=warehouse.select(connection, "changes/settings", **both),
    )
