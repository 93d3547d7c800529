"""Simulated logs of users who return, for the tests of `repeat` and its mixture."""

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages

DAYS, WINDOW = 400, 40


def simulate_log(loyalty, *, users=300, items=80, gap=25.0, gap_sd=0.3, seed=1, window=WINDOW):
    """(training log with ages, what comes in the window after it) of two groups with a taste for half of the items.

    After every event of a pair the user returns with the probability l_u, the user's loyalty, after a lognormal gap of
    g_i days on average, the item's own mean. Events after the last day are dropped.
    """
    generator = np.random.default_rng(seed)
    taste = (np.arange(users)[:, None] + np.arange(items)) % 2 == 0
    likes = generator.random((users, items)) < np.where(taste, 0.25, 0.02)
    odds = loyalty / (1 - loyalty) * np.exp(0.7 * generator.normal(size=users))
    mean_gap = gap * np.exp(0.8 * generator.normal(size=items))
    events = []
    for user, item in zip(*np.nonzero(likes), strict=True):
        day = DAYS * generator.random()
        while day < DAYS:
            events.append((user, item, int(day)))
            if generator.random() >= odds[user] / (1 + odds[user]):
                break
            day += mean_gap[item] * np.exp(gap_sd * generator.normal() - 0.5 * gap_sd**2)
    return split_log(np.array(events), (users, items), DAYS - window)


def split_log(events, shape, cut):
    """(events before the cut as a log with ages, events from then on as a matrix of counts)."""
    before, after = events[events[:, 2] < cut], events[events[:, 2] >= cut]
    later = csr_matrix((np.ones(len(after)), (after[:, 0], after[:, 1])), shape=shape)
    users, items, days = before[np.lexsort((-before[:, 2], before[:, 1], before[:, 0]))].T
    is_first = np.diff(users * shape[1] + items, prepend=-1) != 0
    starts = np.append(np.flatnonzero(is_first), len(days))
    matrix = csr_matrix((np.diff(starts).astype(np.float32), (users[is_first], items[is_first])), shape=shape)
    return with_event_ages(matrix, EventAges(starts, (cut - 1 - days).astype(np.int32))), later


def compute_ndcg(scores, later, k=100):
    """nDCG of each user with something in the window, over all items, the history left in."""
    gains = (later.toarray() > 0)[np.diff(later.indptr) > 0]
    order = np.argsort(-scores[np.diff(later.indptr) > 0], axis=1, kind="stable")[:, :k]
    discounts = 1 / np.log2(np.arange(2, order.shape[1] + 2))
    found = np.take_along_axis(gains, order, axis=1) @ discounts
    return found / np.cumsum(discounts)[np.minimum(gains.sum(axis=1), order.shape[1]) - 1]
