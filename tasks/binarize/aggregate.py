"""Select the events that count, and aggregate those of each user and item into one edge, block by block of users.

The funnel counts what every rule from a log's lines to the observed graph takes away.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from oneclass import sql
from oneclass.models.numerics.adjacency import partition_shards
from oneclass.models.numerics.sequential_histories import put_events
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.warehouse import query

EVENTS_PER_BATCH = 1 << 17  # read from DuckDB at a time
EVENTS_PER_BLOCK = 1 << 20  # aggregated at a time, approximately
BYTES_PER_EVENT = 24
EDGE_SCHEMA = pa.schema(
    [("user_code", pa.int32()), ("item_code", pa.int32()), ("event_count", pa.int32())]
    + [(name, pa.int64()) for name in ("first_at", "last_at", "position")]
    + [("weight", pa.float64())]
)
MIN_TIME, MAX_TIME = -(2**63), 2**63 - 1  # sentinels: the time of an event without one, and above all times
MAX_REASONS = 20  # for rejects; more are counted together


def aggregate_edges(
    connection: duckdb.DuckDBPyConnection, values: dict[str, float | date | None], max_bytes: int
) -> Iterator[pa.RecordBatchReader]:
    """Yield one row per liked pair of user and item, by their codes and sorted by them.

    Events take 24 bytes each. They are held for all users at once if memory allows, else for a range of users at a
    time, and the log is read again for each range; two blocks of edges are held besides. The rows of a range must be
    inserted by a single statement: DuckDB writes such an insert to disk as it goes, but keeps the rows of many small
    inserts in memory.

    Args:
        connection: with the tables `user_codes` and `item_codes`.
        values: which events are likes: `threshold`, `since` and `until`.
        max_bytes: memory for events.
    """
    # one row per user that has a like, in the order of their codes: how many events are likes
    counts = query(connection, "select events from user_codes order by code")["events"].to_numpy()
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    ranges = 1 + BYTES_PER_EVENT * int(starts[-1]) // max(1, max_bytes)
    for first, end in pairwise(partition_shards(starts, ranges).tolist()):
        own = starts[first : end + 1] - starts[first]
        events = _load_events(connection, {**values, "first": first, "end": end}, own)
        yield pa.RecordBatchReader.from_batches(EDGE_SCHEMA, _iterate_blocks(own, events, first))


def _iterate_blocks(starts: np.ndarray, events: np.ndarray, first_user: int) -> Iterator[pa.RecordBatch]:
    with ThreadPoolExecutor(1) as ahead:  # aggregates the next block while the last is written
        pending = None
        for first, end in pairwise(partition_shards(starts, 1 + len(events) // EVENTS_PER_BLOCK).tolist()):
            submitted = ahead.submit(_aggregate_events, starts[first : end + 1], events, first_user + first)
            if pending:
                yield pending.result()
            pending = submitted
        if pending:
            yield pending.result()


def _load_events(
    connection: duckdb.DuckDBPyConnection, values: dict[str, float | date | None], starts: np.ndarray
) -> np.ndarray:
    """Load the likes of some users, int64 (events, 3): item code, time and position; lists begin at `starts`."""
    next_free, events = starts[:-1].copy(), np.empty((int(starts[-1]), 3), dtype=np.int64)
    connection.complete()
    selected = sql.statement("binarize/events_by_value", comparison=">=")
    statement = sql.statement("binarize/likes", likes=f"({selected})")
    likes = connection.sql(statement, params={**values, "never": MIN_TIME})
    for batch in likes.to_arrow_reader(EVENTS_PER_BATCH):
        users, items, times, positions = (column.to_numpy() for column in batch.columns)
        put_events(next_free, users, items, times, positions, events)
    return events


def _aggregate_events(starts: np.ndarray, events: np.ndarray, first_user: int) -> pa.RecordBatch:
    """Aggregate the events of the users from `first_user` on into edges.

    Args:
        starts: the first event of each user, and the end of the last.
    """
    own = events[starts[0] : starts[-1]]
    users = np.repeat(np.arange(first_user, first_user + len(starts) - 1), np.diff(starts))
    pairs = (users << 32) | own[:, 0]
    order = np.argsort(pairs)
    pairs, times, positions = pairs[order], own[order, 1], own[order, 2]
    edge_starts = np.flatnonzero(np.diff(pairs, prepend=-1))
    last_times = times
    if len(edge_starts) < len(pairs):
        last_times = np.maximum.reduceat(times, edge_starts)
        times = np.minimum.reduceat(np.where(times == MIN_TIME, MAX_TIME, times), edge_starts)
        times[times == MAX_TIME] = MIN_TIME
        positions = np.minimum.reduceat(positions, edge_starts)
    columns = [
        (pairs[edge_starts] >> 32).astype(np.int32),
        (pairs[edge_starts] & 0xFFFFFFFF).astype(np.int32),
        np.diff(edge_starts, append=len(pairs)).astype(np.int32),
        times,
        last_times,
        positions,
    ]
    without_weights = pa.nulls(len(edge_starts), pa.float64())
    return pa.RecordBatch.from_arrays([*map(pa.array, columns), without_weights], schema=EDGE_SCHEMA)


def create_weighted_events(
    connection: duckdb.DuckDBPyConnection, settings: BinarizeSettings, since: date | None, until: date | None
) -> None:
    """Create the temporary table `weighted_events` of a period."""
    values = {
        "kinds": list(settings.event_weights),
        "kind_weights": list(settings.event_weights.values()),
        "half_life_days": settings.half_life_days,
        "since": since,
        "until": until,
    }
    connection.execute(sql.statement("binarize/weighted_events"), values)


class LikeSelection(NamedTuple):
    """The settings by which `binarize` selected likes, and the period that they are of."""

    likes: BinarizeSettings = BinarizeSettings.model_validate({})
    since: date | None = None
    until: date | None = None


def select_like_events(
    connection: duckdb.DuckDBPyConnection, selection: LikeSelection, before: date | None = None
) -> tuple[str, dict[str, Any]]:
    """Return the relation of the events that count, with their position and weight, and its parameters.

    Args:
        before: where values add up, leave out events of this day or later, and let weights fade until the last before.
    """
    likes, since, until = selection
    if likes.adds_values:
        create_weighted_events(connection, likes, since, before - timedelta(days=1) if before else until)
        return "(from weighted_events)", {}
    statement = sql.statement("binarize/events_by_value", comparison=">=")
    return f"({statement})", {"threshold": likes.threshold, "since": since, "until": until}


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
