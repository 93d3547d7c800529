"""Simulated logs of users who return, for the tests of `repeat` and its mixture."""

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.generator.returns import draw_loyalty, draw_mean_gaps, draw_return_events
from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages

DAYS, WINDOW = 400, 40


def simulate_log(loyalty, *, users=300, items=80, gap=25.0, gap_sd=0.3, seed=1, window=WINDOW):
    """(training log with ages, what comes in the window after it) of two groups with a taste for half of the items."""
    generator = np.random.default_rng(seed)
    taste = (np.arange(users)[:, None] + np.arange(items)) % 2 == 0
    likes = generator.random((users, items)) < np.where(taste, 0.25, 0.02)
    pair_users, pair_items = np.nonzero(likes)
    first = generator.integers(DAYS, size=len(pair_users)).astype(np.int32)
    pairs, days = draw_return_events(
        pair_users,
        pair_items,
        first,
        draw_loyalty(users, loyalty, 0.7, seed),
        draw_mean_gaps(items, gap, 0.8, seed),
        gap_sd=gap_sd,
        days=DAYS,
        seed=seed,
    )
    return split_log(pair_users[pairs], pair_items[pairs], days, (users, items), DAYS - window)


def split_log(users, items, days, shape, cut):
    """(events before the cut as a log with ages, events from then on as a matrix of counts)."""
    is_before = days < cut
    later = csr_matrix((np.ones((~is_before).sum()), (users[~is_before], items[~is_before])), shape=shape)
    users, items, ages = users[is_before], items[is_before], cut - 1 - days[is_before]
    order = np.lexsort((ages, items, users))
    users, items, ages = users[order], items[order], ages[order].astype(np.int32)
    is_first = np.diff(users * shape[1] + items, prepend=-1) != 0
    starts = np.append(np.flatnonzero(is_first), len(ages))
    matrix = csr_matrix((np.diff(starts).astype(np.float32), (users[is_first], items[is_first])), shape=shape)
    matrix.sort_indices()
    return with_event_ages(matrix, EventAges(starts, ages)), later


def compute_ndcg(scores, later, k=100):
    """nDCG of each user with something in the window, over all items, the history left in."""
    gains = (later.toarray() > 0)[np.diff(later.indptr) > 0]
    order = np.argsort(-scores[np.diff(later.indptr) > 0], axis=1, kind="stable")[:, :k]
    discounts = 1 / np.log2(np.arange(2, order.shape[1] + 2))
    found = np.take_along_axis(gains, order, axis=1) @ discounts
    return found / np.cumsum(discounts)[np.minimum(gains.sum(axis=1), order.shape[1]) - 1]
