"""Availability windows: the items that a user could have considered (Paquet and Koenigstein 2014, section 7).

An item has a window in which it could be considered, and a user the span from the first event to the last. Where the
two have no day in common the user could never have considered the item: h is fixed at zero, and the pair is no
negative. Days are counted as ages, backwards from the last day of the training log, so that an earlier day has the
larger age.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix

from oneclass.models.numerics.sequential_histories import EventAges

UNBOUNDED = np.iinfo(np.int32).max  # the age of a day before all others; its negative is a day after all others
UNDECLARED = np.iinfo(np.int32).min  # the age of a day that the table of items does not state


class Spans(NamedTuple):
    """The first and the last day of each user or item, as ages in days: int32 (vertices,) each, first >= last."""

    first: np.ndarray
    last: np.ndarray


class Availability(NamedTuple):
    """The spans of users and of items, int32 (users,) and (items,); empty if every item was available to everyone."""

    user_first: np.ndarray
    user_last: np.ndarray
    item_first: np.ndarray
    item_last: np.ndarray

    def mask(self) -> np.ndarray:
        """Return which items were available to which users, bool (users, items)."""
        return (self.item_first >= self.user_last[:, None]) & (self.item_last <= self.user_first[:, None])


EVERYTHING = Availability(*4 * (np.empty(0, dtype=np.int32),))


def find_availability(histories: csr_matrix, item_windows: np.ndarray | None) -> Availability:
    """Return the availability of items with these windows, int32 (2, items), to the users of some histories.

    Args:
        item_windows: the `item_spans` of a fit; None if every item was available to everyone.
    """
    return EVERYTHING if item_windows is None else Availability(*user_spans(histories), *item_windows)


@njit(cache=True, inline="always")
def is_available(availability, user, item):
    """Whether an item was available to a user."""
    user_first, user_last, item_first, item_last = availability
    if len(item_first) == 0:
        return True
    return item_first[item] >= user_last[user] and item_last[item] <= user_first[user]


def sum_available(own: Spans, other: Spans, values: np.ndarray) -> np.ndarray:
    """Sum values of the vertices of the other side over those that were available to each vertex of one side.

    Where last_j > first_i, first_j >= last_i holds too. So the sum is that over the others that came before i left,
    less that over those that were gone before i came.

    Returns:
        (vertices,), of the type of `values`.
    """
    came, gone = np.argsort(-other.first), np.argsort(-other.last)
    before = np.searchsorted(-other.first[came], -own.last, "right")
    after = np.searchsorted(-other.last[gone], -own.first, "left")
    sums = (np.concatenate([[0], np.cumsum(values[order])]) for order in (came, gone))
    return next(sums)[before] - next(sums)[after]


def count_available(availability: Availability, weights: np.ndarray) -> np.ndarray | int:
    """Count the items with a positive weight that were available to each user: int (users,), or one number for all."""
    if not len(availability.item_first):
        return int(np.count_nonzero(weights > 0))
    users, items = Spans(*availability[:2]), Spans(*availability[2:])
    return sum_available(users, items, (weights > 0).astype(np.int64))


def scale_to_exposure(degrees: np.ndarray, availability: Availability, user_degrees: np.ndarray) -> np.ndarray:
    """Divide the degrees of items by the share of all edges that are of users to whom the item was available.

    An item that came late has few edges because few users could have it. By the scaled degrees, negatives among the
    available items are about as many as an item's edges, whenever it came.

    Returns:
        float64 (items,).
    """
    users, items = Spans(*availability[:2]), Spans(*availability[2:])
    exposure = sum_available(items, users, user_degrees.astype(np.float64)) / user_degrees.sum()
    return np.divide(degrees, exposure, out=np.zeros(len(degrees)), where=degrees > 0)


def user_spans(histories: csr_matrix) -> Spans:
    """Return the spans of users by their events; without ages, or without events, a user was there at all times."""
    users = histories.shape[0]
    first, last = (np.full(users, day, dtype=np.int32) for day in (UNBOUNDED, -UNBOUNDED))
    some = np.flatnonzero(np.diff(histories.indptr))
    ages: EventAges | None = getattr(histories, "event_ages", None)
    if ages is not None and len(some):
        oldest, newest = _entry_ages(ages)
        starts = histories.indptr[:-1][some]
        first[some], last[some] = np.maximum.reduceat(oldest, starts), np.minimum.reduceat(newest, starts)
    return Spans(first, last)


def item_spans(interactions: csr_matrix, declared: np.ndarray | None = None) -> Spans:
    """Return the windows of items: those declared, by default from an item's first event on, and wider if likes say so.

    Args:
        interactions: (users, items), the training edges with the ages of their events.
        declared: int32 (2, items), ages of the first and the last day of each item; `UNDECLARED` where unknown.

    Raises:
        ValueError: the edges come without ages, or the windows with another number of items.
    """
    ages: EventAges | None = getattr(interactions, "event_ages", None)
    if ages is None:
        raise ValueError(
            "availability = true: needs the times of events, which this log or matrix does not have; leave it out, or "
            "give oneclass.models.numerics.sequential_histories.with_event_ages(interactions, event_ages)"
        )
    count = interactions.shape[1]
    if declared is None:
        declared = np.full((2, count), UNDECLARED, dtype=np.int32)
    if declared.shape != (2, count):
        raise ValueError(f"windows of items: {declared.shape} beside {count} items; give (2, {count})")
    oldest, newest = _entry_ages(ages)
    first, last = np.where(declared == UNDECLARED, np.array([[-UNBOUNDED], [0]], dtype=np.int32), declared)
    np.maximum.at(first, interactions.indices, oldest)
    np.minimum.at(last, interactions.indices, newest)
    return Spans(first, np.minimum(first, last))


def _entry_ages(ages: EventAges) -> tuple[np.ndarray, np.ndarray]:
    """Return the ages of the oldest and the newest event of each entry."""
    return ages.days[ages.starts[1:] - 1], ages.days[ages.starts[:-1]]
