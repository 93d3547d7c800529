"""Count what every rule from a log's lines to the observed graph takes away: the funnel of a run and of a preview."""

from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

import duckdb
import polars as pl

from oneclass import sql
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.stores import warehouse

MAX_REASONS = 20
"""More reasons for rejects are counted together."""


class FunnelStep(NamedTuple):
    """A loss, and what remains after it.

    Attributes:
        unit: what is counted: `lines`, `events` or `likes`.
        reason: why the lost ones are lost; of the first step, what it counts.
        users, items: of the likes that remain; None before likes are counted.
    """

    unit: str
    reason: str
    lost: int
    remaining: int
    users: int | None = None
    items: int | None = None


def count_event_steps(
    connection: duckdb.DuckDBPyConnection,
    settings: BinarizeSettings,
    since: date | None = None,
    until: date | None = None,
) -> list[FunnelStep]:
    """Return the steps from lines to the events that count as likes or, where values add up, have weights."""
    period = {"since": since, "until": until}
    counts: str = "value >= $threshold"
    values: dict[str, Any] = {"threshold": settings.threshold}
    if settings.adds_values:
        counts = "(not $has_kinds or event in $counting) and (not $has_half_life or occurred_at is not null)"
        values = {
            "has_kinds": bool(settings.event_weights),
            "counting": [kind for kind, weight in settings.event_weights.items() if weight],
            "has_half_life": settings.half_life_days is not None,
        }
    statement = sql.statement("binarize/event_counts", counts=counts)
    events, inside, counted = warehouse.fetch_row(connection, statement, {**values, **period})
    reasons = warehouse.select(connection, "ingest/reject_reasons").select("reason", "lines").rows()
    if other := sum(lines for _, lines in reasons[MAX_REASONS:]):
        reasons = [*reasons[:MAX_REASONS], ("other reasons", other)]
    remaining = events + sum(lines for _, lines in reasons)
    steps = [FunnelStep("lines", "lines, or items of lines that list several", 0, remaining)]
    for reason, lines in reasons:
        remaining -= lines
        steps.append(FunnelStep("lines", reason, lines, remaining))
    if since or until:
        flags = " ".join(f"--{name} {day}" for name, day in period.items() if day)
        steps.append(FunnelStep("events", f"outside {flags}, or without a time", events - inside, inside))
    reason = f"value below binarize.threshold = {settings.threshold:g}"
    if settings.adds_values:
        reason = "of a kind with the weight 0, or without the time that half_life_days needs"
    return [*steps, FunnelStep("events", reason, inside - counted, counted)]


def count_pairs(settings: BinarizeSettings, events: int, likes: int, users: int, items: int) -> FunnelStep:
    """Return the step from events that count to likes, pairs of a user and an item."""
    reason = "repeat a like of the same user and item"
    if settings.adds_values:
        reason = (
            f"of a pair whose weights add up to less than binarize.threshold = {settings.threshold:g}, or beside one"
        )
    return FunnelStep("likes", reason, events - likes, likes, users, items)


def store_steps(connection: duckdb.DuckDBPyConnection, run_id: str, steps: Sequence[FunnelStep]) -> None:
    """Write a run's steps to `operations.funnel`, inside the stage's transaction."""
    schema = dict.fromkeys(("unit", "reason"), pl.String) | dict.fromkeys(FunnelStep._fields[2:], pl.Int64)
    frame = pl.DataFrame(steps, schema=schema, orient="row").with_row_index("step")
    connection.execute("delete from operations.funnel where run_id = ?", [run_id])
    warehouse.insert(connection, "operations.funnel", frame.with_columns(run_id=pl.lit(run_id)))


def format_steps(steps: Sequence[FunnelStep]) -> list[str]:
    """Format the steps as lines of a terminal or log, each with what remains and what was lost."""
    lines = []
    for step in steps:
        left = "" if step.users is None else f"; {step.users:,} users and {step.items:,} items remain"
        lines.append(f"{step.remaining:>14,}  " + (f"{-step.lost:,}: {step.reason}{left}" if lines else step.reason))
    return lines
