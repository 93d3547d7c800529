"""Hold out the last days of a training log, or a random part of its events, as the window to predict."""

import numpy as np
from scipy.sparse import csr_matrix

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
