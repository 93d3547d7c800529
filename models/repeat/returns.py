"""How users return to items, by item and by user: shares of repeats, gaps between events, and features of a pair.

For a user u and an item i of the history, with n events of ages a_1 <= a_2 <= ... days, the features are

    count     log n
    decayed   log(c + sum_k 2^(-a_k / half_life)), each event weighing n / (number of ages), with c = MIN_RATE
    recency   log(1 + a_1)
    item      the log-odds of the share of the item's events that repeat an earlier one of the same user
    gap       log P(a_1 < gap <= a_1 + window | gap > a_1), the hazard of the item's lognormal gaps, at least MIN_HAZARD
    user      the log-odds of the share of the user's events that repeat
    breadth   log of the number of items in the history
    events    log(1 + the events of all users with the item, decayed like the user's own)

Recency and an item's quality explain repeat consumption in Anderson, Kumar, Tomkins and Vassilvitskii (2014), the gaps
in Benson, Kumar and Tomkins (2016) and, for repeat purchases, Bhagat et al. (2018). Shares and mean gaps are shrunk
towards those of the log with `smoothing` pseudo-events.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import log_ndtr, logit

from oneclass.models.numerics.sequential_histories import EventAges, copy_order, with_event_ages
from oneclass.models.numerics.validation import row_sums

HELD_OUT_SHARE = 0.1  # of the events with times, in the default window
THINNED_SHARE = 0.2  # of the events of a log without times
MAX_DRAWS = 2**31 - 1  # events of a pair that are thinned; weights may be any number
THINNING_SEED = 1  # the same for every fit, so that a fit is deterministic


def derive_window(interactions: csr_matrix) -> int | None:
    """Return the number of last days with HELD_OUT_SHARE of the events; None if they have no times."""
    ages = getattr(interactions, "event_ages", None)
    return None if ages is None else 1 + int(np.quantile(ages.days, HELD_OUT_SHARE))


def hold_out_window(interactions: csr_matrix, window: int | None) -> tuple[csr_matrix, csr_matrix]:
    """Split a log into (earlier, later): the histories before the window, aged as of its start, and what it has.

    Without times THINNED_SHARE of the events of each pair are drawn, by a binomial draw of its count. Both matrices
    have the shape of the log, and a value is the number of events in it; a pair may be in both.
    """
    ages = getattr(interactions, "event_ages", None)
    if ages is None or window is None:
        events = np.minimum(np.ceil(interactions.data), MAX_DRAWS).astype(np.int64)
        late_share = np.random.default_rng(THINNING_SEED).binomial(events, THINNED_SHARE) / events
        kept = None
    else:
        is_late = ages.days < window
        late_events = row_sums(ages.starts, is_late.astype(np.float64))
        late_share = late_events / np.diff(ages.starts)
        left = np.diff(ages.starts) - late_events.astype(np.int64)
        kept = EventAges(np.concatenate([[0], np.cumsum(left[left > 0])]), ages.days[~is_late] - np.int32(window))
    earlier = _select_entries(interactions, interactions.data * (1 - late_share))
    earlier = with_event_ages(copy_order(interactions, earlier, late_share < 1), kept)
    return earlier, _select_entries(interactions, interactions.data * late_share)


def _select_entries(matrix: csr_matrix, counts: np.ndarray) -> csr_matrix:
    """Return the matrix of these counts, without those that are 0."""
    chosen = counts > 0
    indptr = np.concatenate([[0], np.cumsum(chosen)])[matrix.indptr].astype(matrix.indptr.dtype)
    parts = counts[chosen].astype(np.float32), matrix.indices[chosen], indptr
    found = csr_matrix(parts, shape=matrix.shape)
    found.has_sorted_indices = found.has_canonical_format = True
    return found


FEATURES = ("constant", "count", "decayed", "recency", "item", "gap", "user", "breadth", "events")
MIN_RATE = 0.01  # of the decayed count, so that an event of long ago is no certain farewell
MIN_HAZARD = 1e-6
MIN_SHARE = 1e-3  # of repeats, in a log without any
MIN_LOG_SPREAD = 0.1  # of the gaps of an item


@dataclass(frozen=True)
class ReturnStatistics:
    """The returns of a log.

    Attributes:
        repeat_share: float64 (items,), shrunk.
        log_gap: float64 (items,), the mean logarithm of the gaps in days, shrunk.
        events: float64 (items,), the decayed number of events.
        overall: float64 (2,): the share of repeats in the log, and the standard deviation of the logarithm of an item's
            gaps; 0 if there are none.
    """

    repeat_share: np.ndarray
    log_gap: np.ndarray
    events: np.ndarray
    overall: np.ndarray

    @classmethod
    def learn(cls, histories: csr_matrix, *, half_life: float | None, smoothing: float) -> "ReturnStatistics":
        """Learn the returns of a log, with event ages if it has times."""
        items = histories.shape[1]
        repeats = np.bincount(histories.indices, np.maximum(histories.data - 1.0, 0), minlength=items)
        pairs = np.bincount(histories.indices, minlength=items)
        overall = _share(repeats.sum(), repeats.sum() + pairs.sum())
        share = (repeats + smoothing * overall) / (repeats + pairs + smoothing)
        of_items, gaps = _log_gaps(histories)
        counts = np.bincount(of_items, minlength=items)
        mean = gaps.mean() if len(gaps) else 0.0
        log_gap = (np.bincount(of_items, gaps, minlength=items) + smoothing * mean) / (counts + smoothing)
        spread = 0.0
        if len(gaps):
            spread = max(MIN_LOG_SPREAD, float(np.sqrt(np.mean((gaps - log_gap[of_items]) ** 2))))
        events = np.bincount(histories.indices, decayed_counts(histories, half_life), minlength=items)
        return cls(share, log_gap, events, np.array([overall, spread]))

    def features(
        self, histories: csr_matrix, *, half_life: float | None, smoothing: float, window: int | None
    ) -> np.ndarray:
        """Return the features of each entry, float64 (features, entries), in the order of FEATURES."""
        found = np.zeros((len(FEATURES), histories.nnz))
        lengths = np.diff(histories.indptr)
        newest, _ = entry_ages(histories)
        share_of_user = np.repeat(self.user_shares(histories, smoothing), lengths)
        found[0] = 1
        found[1] = np.log(histories.data.astype(np.float64))
        found[2] = np.log(MIN_RATE + decayed_counts(histories, half_life))
        found[3] = np.log1p(newest)
        found[4] = logit(np.maximum(self.repeat_share[histories.indices], MIN_SHARE))
        found[5] = self.log_hazard(histories.indices, newest, window)
        found[6] = logit(np.maximum(share_of_user, MIN_SHARE))
        found[7] = np.log(np.repeat(np.maximum(lengths, 1), lengths))
        found[8] = np.log1p(self.events[histories.indices])
        return found

    def log_hazard(self, items: np.ndarray, age: np.ndarray, window: int | None) -> np.ndarray:
        """Return the log of the chance that a gap ends in the window, having lasted `age` days; 0 without gaps."""
        spread = self.overall[1]
        if window is None or spread == 0:
            return np.zeros(len(items))
        # An event is at the middle of its day on average.
        beyond, later = ((self.log_gap[items] - np.log(days)) / spread for days in (age + 0.5, age + 0.5 + window))
        return np.log(np.maximum(-np.expm1(log_ndtr(later) - log_ndtr(beyond)), MIN_HAZARD))

    def user_shares(self, histories: csr_matrix, smoothing: float) -> np.ndarray:
        """Return the share of each user's events that repeat, float64 (users,), shrunk."""
        repeats = row_sums(histories.indptr, np.maximum(histories.data - 1.0, 0))
        return (repeats + smoothing * self.overall[0]) / (repeats + np.diff(histories.indptr) + smoothing)


def decayed_counts(histories: csr_matrix, half_life: float | None) -> np.ndarray:
    """Return the number of events of each entry, float64 (entries,), an event of age a weighing 2^(-a / half_life)."""
    counts = histories.data.astype(np.float64)
    ages = getattr(histories, "event_ages", None)
    if ages is None or half_life is None:
        return counts
    return counts * row_sums(ages.starts, np.exp2(-ages.days / half_life)) / np.diff(ages.starts)


def entry_ages(histories: csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Return the age of the newest and of the oldest event of each entry; 0 without times."""
    ages = getattr(histories, "event_ages", None)
    if ages is None:
        none = np.zeros(histories.nnz)
        return none, none
    return ages.days[ages.starts[:-1]].astype(np.float64), ages.days[ages.starts[1:] - 1].astype(np.float64)


def _share(part: float, whole: float) -> float:
    return min(max(part / whole, MIN_SHARE), 1 - MIN_SHARE)


def _log_gaps(histories: csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Return the item and the logarithm of every gap of a day or more between two events of a pair."""
    ages = getattr(histories, "event_ages", None)
    if ages is None:
        return np.empty(0, dtype=np.int64), np.empty(0)
    gaps = np.diff(ages.days)
    # The last event of an entry and the first of the next have no gap between them.
    gaps[ages.starts[1:-1] - 1] = 0
    items = np.repeat(histories.indices, np.diff(ages.starts))[1:]
    return items[gaps > 0], np.log(gaps[gaps > 0])
