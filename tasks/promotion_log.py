"""The record of promotion decisions, `operations.promotions`."""

from dataclasses import asdict, dataclass
from datetime import datetime

import duckdb
import polars as pl

from oneclass.tasks.stores import warehouse

BY_HAND = "by hand: "  # with which the reason of what a person decided begins


@dataclass(frozen=True)
class Decision:
    """A row of `operations.promotions`."""

    run_id: str
    decided_at: datetime
    champion: str | None
    challenger: str
    metric: str | None
    difference: float | None
    standard_error: float | None
    margin: float
    promoted: bool
    reason: str

    @property
    def is_refit(self) -> bool:
        """Whether the published model, fitted to newer edges, took its own place."""
        return self.promoted and self.champion == self.challenger and not self.reason.startswith(BY_HAND)

    @property
    def sentence(self) -> str:
        """The decision as a sentence."""
        if self.promoted and self.reason.startswith(BY_HAND):
            return f"{self.challenger} was published {self.reason}"
        if self.promoted:
            return f"{self.challenger} was {'refitted' if self.is_refit else 'promoted'}: {self.reason}"
        return f"not promoted: {self.challenger}. {self.champion} stays as it was published: {self.reason}"


def record_decision(connection: duckdb.DuckDBPyConnection, decision: Decision) -> None:
    """Write a decision, replacing that of an earlier try of the same run."""
    connection.execute("delete from operations.promotions where run_id = ?", [decision.run_id])
    warehouse.insert(connection, "operations.promotions", pl.DataFrame([asdict(decision)], infer_schema_length=None))


def load_decisions(connection: duckdb.DuckDBPyConnection, run_id: str | None = None, limit: int = 1) -> list[Decision]:
    """Load the last decisions, newest first, of all runs or of one."""
    rows = warehouse.select(connection, "promotion/decisions", run_id=run_id, rows=limit)
    return [Decision(**row) for row in rows.iter_rows(named=True)]
