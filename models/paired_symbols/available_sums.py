"""Sums over the vertices of one side that were available to each vertex of the other.

A vertex j was available to i if first_j >= last_i and last_j <= first_i (`models.negatives.availability`; days are
ages). Where last_j > first_i, first_j >= last_i holds too. So a sum over the available is the sum over those that came
before i left, less the sum over those that were gone before i came: a difference of two cumulative sums, for each day.
"""

import numpy as np

from oneclass.models.negatives.availability import Spans


class AvailableSums:
    """The days by which sums over one side are cumulated.

    Args:
        spans: of the vertices of that side.
    """

    def __init__(self, spans: Spans) -> None:
        (self._first_days, self._by_first), (self._last_days, self._by_last) = (
            np.unique(-ages, return_inverse=True) for ages in spans
        )

    def ranges(self, spans: Spans) -> np.ndarray:
        """Return which two cumulative sums have the difference that is the sum of each vertex of the other side.

        Returns:
            int64 (vertices, 2), indices into `cumulate`.
        """
        came = np.searchsorted(self._first_days, -spans.last, "right")
        gone = np.searchsorted(self._last_days, -spans.first, "left")
        return np.stack([came, len(self._first_days) + 1 + gone], axis=1)

    def cumulate(self, rows: np.ndarray, n: int) -> np.ndarray:
        """Return the cumulative sums of t_j E[y y'], y = (v, b, 1).

        Args:
            rows: float32 (vertices, 2 W), in the layout of `models.paired_symbols.edges`.
            n: K + 2.

        Returns:
            float64 (sums, n, n).
        """
        parts = (_sum_by_day(rows, n, days) for days in (self._by_first, self._by_last))
        return np.concatenate([np.cumsum(part, axis=0) for part in parts])


def _sum_by_day(rows: np.ndarray, n: int, days: np.ndarray) -> np.ndarray:
    """Return the sums of t_j E[y y'] over the vertices of each day, the first of them of none: (days + 1, n, n)."""
    order, width = np.argsort(days, kind="stable"), rows.shape[1] // 2
    ends = np.append(0, np.cumsum(np.bincount(days)))
    sums = np.zeros((len(ends), n, n))
    diagonal = np.arange(n - 1)
    for day in range(1, len(ends)):
        chosen = rows[order[ends[day - 1] : ends[day]]].astype(np.float64)
        means, variances, shares = chosen[:, :n], chosen[:, width : width + n - 1], chosen[:, width + n - 1]
        sums[day] = (means * shares[:, None]).T @ means
        sums[day, diagonal, diagonal] += shares @ variances
    return sums
