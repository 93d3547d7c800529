"""Metrics of recommendation lists beside accuracy: how much of the catalogue they show, how surprising and how popular
their items are, and how evenly items are shown.

`models.evaluation.definitions` has the formulas and their sources.
Higher coverage and novelty, and lower percentile, lift and Gini index, mean less popularity bias.
"""

import copy
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.metrics import Mean, mean_and_error
from oneclass.models.numerics.adjacency import as_read_only

TOP_K = 20


class ExposureCounts(NamedTuple):
    """The counts of some users.

    Attributes:
        times: int64 (items,), number of lists with each item.
        of_users: float64 (4, users), means over each user's list, and the mean degree of the history.
    """

    times: np.ndarray
    of_users: np.ndarray


class Exposure:
    """Counts recommendations, one block of users after another.

    Args:
        item_degrees: int64 (items,), training edges of each item.
        training_users: M.
    """

    def __init__(self, item_degrees: np.ndarray, training_users: int) -> None:
        self._times = np.zeros(len(item_degrees), dtype=np.int64)
        self._degrees = as_read_only(item_degrees, np.int64)
        self._information = np.log2(training_users) - np.log2(np.maximum(item_degrees, 1))
        self._percentile = _popularity_percentiles(item_degrees)
        self._of_users: list[np.ndarray] = []

    def add(self, recommended: np.ndarray, histories: csr_matrix) -> None:
        """Count a block of users.

        Args:
            recommended: int32 (block, k), from `models.numerics.top_k.top_items`, padded with -1.
            histories: (block, items) CSR, the histories for which the items were recommended.
        """
        there = recommended >= 0
        self._times += np.bincount(recommended[there], minlength=len(self._times))
        lengths = there.sum(axis=1)
        sums = [
            np.where(there, values[recommended], 0).sum(axis=1)
            for values in (self._information, self._percentile, self._degrees)
        ]
        up_to = np.append(0, np.cumsum(self._degrees[histories.indices]))[histories.indptr]
        history = np.diff(up_to) / np.maximum(np.diff(histories.indptr), 1)
        self._of_users.append(np.stack([*(of_list / np.maximum(lengths, 1) for of_list in sums), history]))

    def copy_empty(self) -> "Exposure":
        """Return an empty counter for the same items."""
        other = copy.copy(self)
        other._times, other._of_users = np.zeros_like(self._times), []
        return other

    @property
    def shown(self) -> ExposureCounts:
        """The counts so far."""
        return ExposureCounts(self._times, np.concatenate([np.empty((4, 0)), *self._of_users], axis=1))

    def take(self, shown: ExposureCounts) -> None:
        """Append the counts of other users."""
        self._times += shown.times
        self._of_users.append(shown.of_users)

    def metrics(self) -> dict[str, Mean]:
        """Compute every metric by name; metrics over all lists together have no error.

        In the novelty, an item without a training edge counts like one with a single edge. The lift is over users whose
        history has an item with a training edge, and its standard error is that of a ratio of means (delta method). If
        there is no such user, the lift is left out.
        """
        times, (information, percentile, degree, history) = self.shown
        users, shown = len(information), times[self._degrees > 0]
        found = {
            "coverage": Mean(float(np.mean(shown > 0)), None, users),
            "novelty": mean_and_error(information),
            "popularity_percentile": mean_and_error(percentile),
            "gini": Mean(gini(shown), None, users),
        }
        if (history > 0).any():
            found["popularity_lift"] = _popularity_lift(degree[history > 0], history[history > 0])
        return {f"{name}@{TOP_K}": value for name, value in found.items()}


def gini(counts: np.ndarray) -> float:
    """Gini index of non-negative counts, (n,)."""
    ordered, n = np.sort(counts).astype(np.float64), len(counts)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * max(ordered.sum(), 1)))


def _popularity_lift(recommended: np.ndarray, known: np.ndarray) -> Mean:
    ratio = float(np.mean(recommended) / np.mean(known))
    error = mean_and_error((recommended - ratio * known) / np.mean(known)).standard_error
    return Mean(ratio - 1, error, len(known))


def _popularity_percentiles(degrees: np.ndarray) -> np.ndarray:
    """For each item the share of the training items with fewer edges, float64 (items,); ties count half."""
    trained, (distinct, item) = np.sort(degrees[degrees > 0]), np.unique(degrees, return_inverse=True)
    below, at_most = (np.searchsorted(trained, distinct, side)[item] for side in ("left", "right"))
    return (below + at_most) / (2 * len(trained))
