"""Liked events of one user and item folded into one edge, some users at a time, each user's edges in the order of items."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import duckdb
import numpy as np
import pyarrow as pa

from oneclass import sql
from oneclass.models.distributed import partition_by_edges
from oneclass.models.numerics.event_lists import put_events
from oneclass.tasks.stores.warehouse import select

EVENTS_PER_BATCH = 1 << 17  # events that are taken from DuckDB at a time
EVENTS_PER_BLOCK = 1 << 20  # events, about, that are folded at a time
BYTES_PER_EVENT = 24
EDGE_SCHEMA = pa.schema(
    [("user_code", pa.int32()), ("item_code", pa.int32()), ("event_count", pa.int32())]
    + [(name, pa.int64()) for name in ("first_at", "last_at", "position")]
)
MIN_TIME, MAX_TIME = -(2**63), 2**63 - 1  # in place of a time that an event has not; what no time is


def aggregate_edges(
    connection: duckdb.DuckDBPyConnection, values: dict[str, float | date | None], max_bytes: int
) -> Iterator[pa.RecordBatchReader]:
    """One row per pair of a user and an item with a like, by their codes, in the order of these.

    Events are held 24 bytes each, those of all users at once if there is room, else of some users after others, for which the
    log is read again; and beside them two blocks of users' edges. They are folded as they are read, which has to be by one
    statement: DuckDB writes what it inserts to the disk as it goes, but keeps the rows of many small inserts.

    Args:
        connection: in which the tables `user_codes` and `item_codes` are.
        values: which events are likes: `threshold`, `since` and `until`.
        room: bytes for events.
    """
    counts = select(connection, "binarize/event_counts")["events"].to_numpy()
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    for first, end in partition_by_edges(starts, 1 + BYTES_PER_EVENT * int(starts[-1]) // max(1, max_bytes)):
        own = starts[first : end + 1] - starts[first]
        events = _load_events(connection, {**values, "first": first, "end": end}, own)
        yield pa.RecordBatchReader.from_batches(EDGE_SCHEMA, _iterate_blocks(own, events, first))


def _iterate_blocks(starts: np.ndarray, events: np.ndarray, first_user: int) -> Iterator[pa.RecordBatch]:
    with ThreadPoolExecutor(1) as ahead:  # the next block is folded while the last is written
        waiting = None
        for first, end in partition_by_edges(starts, 1 + len(events) // EVENTS_PER_BLOCK):
            following = ahead.submit(_aggregate_events, starts[first : end + 1], events, first_user + first)
            if waiting:
                yield waiting.result()
            waiting = following
        yield waiting.result()


def _load_events(
    connection: duckdb.DuckDBPyConnection, values: dict[str, float | date | None], starts: np.ndarray
) -> np.ndarray:
    """The likes of some users, int64 (events, 3): the item's code, time and position, in the lists that begin at `starts`."""
    free, events = starts[:-1].copy(), np.empty((int(starts[-1]), 3), dtype=np.int64)
    connection.complete()
    likes = connection.sql(sql.statement("binarize/likes"), params={**values, "never": MIN_TIME})
    for batch in likes.to_arrow_reader(EVENTS_PER_BATCH):
        put_events(free, *(column.to_numpy() for column in batch.columns), events)
    return events


def _aggregate_events(starts: np.ndarray, events: np.ndarray, first_user: int) -> pa.RecordBatch:
    """The edges of the users from `first_user` on.

    Args:
        starts: where the events of each of them begin, and the end of the last.
    """
    own = events[starts[0] : starts[-1]]
    users = np.repeat(np.arange(first_user, first_user + len(starts) - 1), np.diff(starts))
    pairs = (users << 32) | own[:, 0]
    order = np.argsort(pairs)
    pairs, times, positions = pairs[order], own[order, 1], own[order, 2]
    begins = np.flatnonzero(np.diff(pairs, prepend=-1))
    last = times
    if len(begins) < len(pairs):
        last = np.maximum.reduceat(times, begins)
        times = np.minimum.reduceat(np.where(times == MIN_TIME, MAX_TIME, times), begins)
        times[times == MAX_TIME] = MIN_TIME
        positions = np.minimum.reduceat(positions, begins)
    columns = [
        (pairs[begins] >> 32).astype(np.int32),
        (pairs[begins] & 0xFFFFFFFF).astype(np.int32),
        np.diff(begins, append=len(pairs)).astype(np.int32),
        times,
        last,
        positions,
    ]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=EDGE_SCHEMA)
