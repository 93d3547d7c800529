"""Histories with the order in which a user liked the items and the ages of the events, and weights by the order.

A user's latest likes may predict the next ones better than the earliest. An entry with n newer entries in its row has
the weight (1 + n)^-p, where p is the setting `recency_exponent`; with p = 0 all weights are 1.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix

from oneclass.models.numerics.validation import check_matrix


@njit(cache=True, nogil=True)
def put_events(free, users, items, times, positions, found):
    """Put a batch of events into the lists of their users.

    Args:
        free: int64 (users,), the next free place of each user's list in `found`; moved on.
        users, items: (events,) integers from 0.
        times, positions: int64 (events,).
        found: int64 (all events, 3): item, time and position, side by side, so that an event costs one miss of the
            cache.
    """
    for event in range(len(users)):
        at = free[users[event]]
        found[at, 0] = items[event]
        found[at, 1] = times[event]
        found[at, 2] = positions[event]
        free[users[event]] = at + 1


@dataclass(frozen=True, eq=False)
class EventAges:
    """The ages of the events of each entry of a matrix, of at least one event an entry.

    Attributes:
        starts: int64 (entries + 1,), where the events of each entry begin.
        days: int32 (events,), how many days before the last day of the training log an event was, ascending within an
            entry.
    """

    starts: np.ndarray
    days: np.ndarray

    def take(self, entries: np.ndarray) -> "EventAges":
        """Return the ages of these entries, in their order."""
        counts = self.starts[entries + 1] - self.starts[entries]
        starts = np.concatenate([[0], np.cumsum(counts)])
        positions = np.arange(starts[-1]) + np.repeat(self.starts[entries] - starts[:-1], counts)
        return EventAges(starts, self.days[positions])


class SequentialHistories(csr_matrix):
    """(users, items) histories with the order of each row's entries, or the ages of their events; indexing keeps both.

    Attributes:
        recency_ranks: int (entries,), in the order of `indices`: within a row the lowest is the newest, and equal ones
            came at one time. Only their order matters, so dropping entries does not require new ranks. None if the
            matrix comes from an operation other than indexing, or was built without.
        event_ages: of the entries, in the order of `indices`; None like the recency ranks.
    """

    recency_ranks: np.ndarray | None = None
    event_ages: EventAges | None = None

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, SequentialHistories) and (self.recency_ranks is not None or self.event_ages is not None):
            entries = csr_matrix((np.arange(self.nnz), self.indices, self.indptr), shape=self.shape)[key].data
            copy_order(self, found, entries)
        return found


def with_recency_ranks(histories: csr_matrix, recency_ranks: np.ndarray | None) -> csr_matrix:
    """Return a view of the histories with the recency ranks of their entries, or `histories` itself if they are None.

    Raises:
        ValueError: the number of ranks differs from the number of entries.
    """
    return _view_with(histories, "recency_ranks", recency_ranks, 0 if recency_ranks is None else len(recency_ranks))


def with_event_ages(histories: csr_matrix, event_ages: EventAges | None) -> csr_matrix:
    """Return a view of the histories with the ages of their events; as `with_recency_ranks`."""
    return _view_with(histories, "event_ages", event_ages, 0 if event_ages is None else len(event_ages.starts) - 1)


def _view_with(histories: csr_matrix, name: str, part: Any, entries: int) -> csr_matrix:
    if part is None:
        return histories
    if entries != histories.nnz:
        of = name.replace("_", " ")
        raise ValueError(f"{of} of {entries} entries but {histories.nnz} entries; give those of each entry")
    found = _view_in_order(histories)
    setattr(found, name, part)
    return found


def copy_order(histories: csr_matrix, found: csr_matrix, entries: np.ndarray) -> csr_matrix:
    """Return `found`, whose entries are these of the histories, with their recency ranks and event ages, if any.

    Args:
        entries: int (entries of `found`,), or a mask of the histories' entries.
    """
    if entries.dtype == bool:
        entries = np.flatnonzero(entries)
    ranks, ages = (getattr(histories, name, None) for name in ("recency_ranks", "event_ages"))
    if ranks is None and ages is None:
        return found
    found = found if isinstance(found, SequentialHistories) else _view_in_order(found)
    found.recency_ranks = None if ranks is None else ranks[entries]
    found.event_ages = None if ages is None else ages.take(entries)
    return found


def drop_unknown_entries(histories: csr_matrix, trained: np.ndarray, model: str) -> csr_matrix:
    """Histories, (users, items), without the entries of items that have no training edge; a warning says how many.

    The others keep their order and the ages of their events, where they are known.

    Args:
        trained: bool (items,), whether an item has a training edge.
        model: its name, for the warning.

    Raises:
        TypeError, ValueError: as `check_matrix`; or the histories have another number of columns.
    """
    check_matrix(histories, "histories")
    items = len(trained)
    if histories.shape[1] != items:
        raise ValueError(
            f"histories: {histories.shape[1]} columns, but {model} was fitted on a matrix of {items} columns; give one "
            "column for each item of the training matrix, in the same order"
        )
    known = trained[histories.indices]
    if known.all():
        return histories
    warnings.warn(
        f"{model}: {np.count_nonzero(~known)} history entries are of items that no training user has; they are ignored",
        stacklevel=4,
    )
    indptr = np.concatenate([[0], np.cumsum(known)])[histories.indptr]
    parts = (histories.data[known], histories.indices[known], indptr.astype(histories.indptr.dtype))
    return copy_order(histories, csr_matrix(parts, shape=(histories.shape[0], items)), known)


def single_item_histories(items: np.ndarray, count: int) -> csr_matrix:
    """Histories of one item each, (len(items), count); `items` are columns."""
    indptr = np.arange(len(items) + 1, dtype=np.int32)
    alone = csr_matrix((np.ones(len(items), np.float32), np.asarray(items, np.int32), indptr), (len(items), count))
    return with_recency_ranks(alone, np.zeros(len(items), dtype=np.int32))


def identify_histories(histories: csr_matrix) -> tuple[bytes, ...]:
    """Return bytes that are equal for equal histories: of their entries, recency ranks and event ages."""
    ages = getattr(histories, "event_ages", None)
    order = getattr(histories, "recency_ranks", None), *((ages.starts, ages.days) if ages else ())
    arrays = histories.indptr, histories.indices, histories.data, *order
    return tuple(array.tobytes() for array in arrays if array is not None)


def _view_in_order(histories: csr_matrix) -> SequentialHistories:
    parts = histories.data, histories.indices, histories.indptr
    found = SequentialHistories(parts, shape=histories.shape, copy=False)
    found.has_sorted_indices = histories.has_sorted_indices
    found.has_canonical_format = histories.has_canonical_format
    found.recency_ranks = getattr(histories, "recency_ranks", None)
    found.event_ages = getattr(histories, "event_ages", None)
    return found


def recency_weights(histories: csr_matrix, exponent: float) -> np.ndarray:
    """Weight each entry by (1 + n)^-exponent, where n is the number of newer entries in its row.

    Entries of equal recency ranks, which came at one time, weigh alike.

    Returns:
        float32 (entries,).

    Raises:
        ValueError: the exponent is not 0, and the histories have no order.
    """
    if exponent == 0:
        return np.ones(len(histories.indices), dtype=np.float32)
    if (recency_ranks := getattr(histories, "recency_ranks", None)) is None:
        raise ValueError(
            f"recency_exponent = {exponent:g} weighs likes by their order, which these histories do not have: give "
            "oneclass.models.numerics.sequential_histories.with_recency_ranks(histories, recency_ranks)"
        )
    lengths = np.diff(histories.indptr)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    newest_first = np.lexsort((recency_ranks, rows))
    ranks, places = recency_ranks[newest_first], np.arange(len(rows))
    is_older = (np.diff(rows, prepend=-1) != 0) | (np.diff(ranks, prepend=-1) != 0)
    newer = np.empty(len(rows), dtype=np.int64)
    newer[newest_first] = np.maximum.accumulate(np.where(is_older, places, 0)) - histories.indptr[rows]
    return ((1.0 + newer) ** -exponent).astype(np.float32)


@njit(cache=True, nogil=True)
def select_ranks(starts, items, ranks, rows, selected_starts, selected_columns, item_of_column, count):
    """Rank some entries of each row among themselves by the ranks of all its entries.

    Args:
        starts, items, ranks: of all rows: the first entry of each, the items of the entries, and their ranks, which are
            0, 1, ... in each row.
        rows: int (selected rows,), the row among all of each.
        selected_starts, selected_columns: of the selected rows, the first entry of each and the columns of the entries;
            each is an entry of the row among all.
        item_of_column: int (columns,).
        count: number of items.

    Returns:
        int32 (selected entries,), in each row 0, 1, ... in the order of `ranks`.
    """
    found = np.empty(len(selected_columns), dtype=np.int32)
    rank_of_item = np.empty(count, dtype=np.int32)  # in the row, for its items
    for row in range(len(rows)):
        begin, end = starts[rows[row]], starts[rows[row] + 1]
        for entry in range(begin, end):
            rank_of_item[items[entry]] = ranks[entry]
        lower = np.zeros(end - begin + 1, dtype=np.int32)  # for each rank among all, the number of selected lower ones
        for entry in range(selected_starts[row], selected_starts[row + 1]):
            found[entry] = rank_of_item[item_of_column[selected_columns[entry]]]
            lower[found[entry] + 1] = 1
        for rank in range(1, len(lower)):
            lower[rank] += lower[rank - 1]
        for entry in range(selected_starts[row], selected_starts[row + 1]):
            found[entry] = lower[found[entry]]
    return found
