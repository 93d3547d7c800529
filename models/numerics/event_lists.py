"""Events in the lists of their users."""

from numba import njit


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
