"""Repeat consumption: rank the items of a history by the chance that the user takes them again in the coming window.

    P(u takes i again | u takes anything) = sigma(b'x_ui)

x_ui are the features of `models.repeat.returns`: the user's own events, which count less the older they are, the
item's return gaps, and how often the user and the users of the item repeat. The window is the last days of the training
log, held out within the fit: b is fitted on the pairs before it by penalised maximum likelihood, with own counts as the
prior, and the half-life and the smoothing are those of the highest likelihood. Then the statistics of the items are
learned from the whole log.

The roles of recency and quality are those of Anderson, Kumar, Tomkins and Vassilvitskii 2014, "The dynamics of repeat
consumption"; of gaps, those of Benson, Kumar and Tomkins 2016, "Modeling user consumption sequences", and of Bhagat et
al. 2018, "Buy it again". Personal counts with decay alone are strong on baskets: Hu et al. 2020 (TIFU-KNN), and Li et
al. 2023, "A next basket recommendation reality check". The regression is ours.
"""

import itertools
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import expit

from oneclass.models.base import Model
from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.threads import single_threaded_blas
from oneclass.models.repeat.returns import FEATURES, ReturnStatistics, derive_window, hold_out_window
from oneclass.models.settings import ModelSettings

HALF_LIVES = (0.25, 1.0, 4.0, 16.0, 64.0)  # in windows
SMOOTHINGS = (1.0, 5.0, 25.0)
MAX_PAIRS = 100_000  # of the regression
RIDGE = 1.0  # pulls the coefficients, not the constant, towards their prior
OWN_COUNTS = np.array([float(name == "count") for name in FEATURES])  # the prior of b


class RepeatSettings(ModelSettings):
    """No settings: what the history says of returns, the fit chooses on the last days of the training log."""

    @property
    def reads_times(self) -> bool:
        """Whether the fit and scores depend on the ages of the events of a history: they do."""
        return True


class Repeat(Model[RepeatSettings]):
    """Own events with decay, return gaps and shares of repeats, weighed by a logistic regression on a held-out window.

    Items of the history are scored by the probability; the others follow by popularity, below 0. Ages of events come
    with the histories (`models.numerics.sequential_histories.with_event_ages`); an event without an age is of the last
    day. In a log without times, a random part of the events is held out, and only counts tell items apart.

    Attributes:
        coefficients: float64 (features,), b.
        parameters: `half_life` in days, `smoothing` and `window` of the features; None in a log without times.
        statistics: of the returns to items.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import Repeat
        >>> plays = csr_matrix(np.array([[9, 1, 4], [1, 5, 0], [0, 2, 6]]))
        >>> model = Repeat().fit(plays)
        >>> np.argsort(-model.scores(plays)).tolist()
        [[0, 2, 1], [1, 0, 2], [2, 1, 0]]
    """

    name = "repeat"
    Settings = RepeatSettings
    is_deterministic = True

    coefficients: np.ndarray
    parameters: dict[str, Any]
    statistics: ReturnStatistics

    def again_probabilities(self, histories: csr_matrix) -> np.ndarray:
        """Return the probability of each entry of checked histories to be taken again, float64 (entries,)."""
        features = self.statistics.features(histories, **self.parameters)
        return expit(sum((b * x for b, x in zip(self.coefficients, features, strict=True)), np.zeros(histories.nnz)))

    def _contributions(self, history: csr_matrix, items: np.ndarray) -> np.ndarray | None:
        """Return the probability of each item of the history as its contribution to its own score, and nothing else."""
        own = history.indices[:, None] == np.asarray(items)[None, :]
        return np.where(own, self.again_probabilities(history)[:, None], 0).astype(np.float32)

    def similar_items(self, items: Any, n: int = 10) -> Any:
        """Raise: the model compares no items."""
        raise ValueError("repeat has no similarities between items; publish another model")

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        window = derive_window(interactions)
        earlier, later = hold_out_window(interactions, window)
        pairs, happened = label_pairs(earlier, later)
        half_lives = (None,) if window is None else tuple(multiple * window for multiple in HALF_LIVES)
        highest = -np.inf
        for smoothing, half_life in itertools.product(SMOOTHINGS, half_lives):
            statistics = ReturnStatistics.learn(earlier, half_life=half_life, smoothing=smoothing)
            coefficients, objective = OWN_COUNTS, 0.0
            if pairs.nnz:
                features = statistics.features(pairs, half_life=half_life, smoothing=smoothing, window=window)
                coefficients, objective = fit_logistic(features, happened, OWN_COUNTS)
            if objective > highest:
                highest, self.coefficients = objective, coefficients
                self.parameters = {"half_life": half_life, "smoothing": smoothing, "window": window}
        chosen = {name: self.parameters[name] for name in ("half_life", "smoothing")}
        self.statistics = ReturnStatistics.learn(interactions, **chosen)

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        scores = np.tile((-1.0 / (1.0 + self.item_degrees)).astype(np.float32), (histories.shape[0], 1))
        rows = np.repeat(np.arange(histories.shape[0]), np.diff(histories.indptr))
        scores[rows, histories.indices] = self.again_probabilities(histories)
        return scores

    def _arrays(self) -> dict[str, np.ndarray]:
        parameters = np.array([value or 0.0 for value in self.parameters.values()])
        return {"coefficients": self.coefficients, "parameters": parameters, **vars(self.statistics)}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.coefficients, (half_life, smoothing, window) = arrays.pop("coefficients"), arrays.pop("parameters")
        self.parameters = {
            "half_life": float(half_life) or None,
            "smoothing": float(smoothing),
            "window": int(window) or None,
        }
        self.statistics = ReturnStatistics(**arrays)


def active_rows(earlier: csr_matrix, later: csr_matrix) -> np.ndarray:
    """Return the users with events before the window and in it, int (rows,)."""
    return np.flatnonzero((np.diff(earlier.indptr) > 0) & (np.diff(later.indptr) > 0))


def label_pairs(earlier: csr_matrix, later: csr_matrix) -> tuple[csr_matrix, np.ndarray]:
    """Return histories of users who came back in the window, at most MAX_PAIRS pairs, and whether each pair did."""
    rows = active_rows(earlier, later)
    pairs = np.diff(earlier.indptr)[rows].sum()
    rows = rows[:: max(1, -(-int(pairs) // MAX_PAIRS))]
    histories, targets = earlier[rows], later[rows]
    happened = csr_matrix((np.ones(targets.nnz), targets.indices, targets.indptr), shape=targets.shape)
    users = np.repeat(np.arange(len(rows)), np.diff(histories.indptr))
    return histories, np.asarray(happened[users, histories.indices]).ravel()


def fit_logistic(features: np.ndarray, happened: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, float]:
    """Fit P(happened) = sigma(b'x) by penalised maximum likelihood; half an event and half a non-event are added.

    Args:
        features: float64 (features, rows), the first of them constant.
        happened: float64 (rows,), 0 or 1.
        prior: the coefficients that the penalty pulls to.

    Returns:
        The coefficients float64 (features,), and the penalised log-likelihood.
    """
    center = features.mean(axis=1)
    rows = np.column_stack([features, center, center])
    happened = np.concatenate([happened, [1.0, 0.0]])
    weights = np.concatenate([np.ones(features.shape[1]), [0.5, 0.5]])
    penalty = np.append(0.0, np.full(len(rows) - 1, RIDGE))

    def loss(coefficients: np.ndarray) -> tuple[float, np.ndarray]:
        eta, away = coefficients @ rows, penalty * (coefficients - prior)
        value = weights @ (np.logaddexp(0, eta) - happened * eta) + 0.5 * away @ (coefficients - prior)
        return float(value), rows @ (weights * (expit(eta) - happened)) + away

    def curvature(coefficients: np.ndarray) -> np.ndarray:
        p = expit(coefficients @ rows)
        return (rows * (weights * p * (1 - p))) @ rows.T + np.diag(penalty)

    with single_threaded_blas():
        found = minimize(loss, prior, jac=True, hess=curvature, method="trust-exact")
    return found.x, -float(found.fun)
