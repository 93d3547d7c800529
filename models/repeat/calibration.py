"""Calibrate on a held-out window: a logistic and a Poisson regression, and the curve of new items by rank.

Sums over entries are numpy's own, in a fixed order, so that the bits do not depend on the threads of BLAS.
"""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

RIDGE = 1.0  # pulls the coefficients, not the constant, towards their prior
MAX_STEPS = 50
TOLERANCE = 1e-8
MIN_EXPONENT, MAX_EXPONENT = 0.01, 5.0
OFFSETS = 2.0 ** np.arange(-2, 13)  # of ranks, that are tried

# The log-likelihood of each row, its derivative by the linear predictor, and minus its second derivative.
Likelihood = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


def fit_logistic(features: np.ndarray, happened: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, float]:
    """Fit P(happened) = sigma(b'x) by penalised maximum likelihood; half an event and half a non-event are added.

    Args:
        features: float64 (features, rows), the first of them constant.
        happened: float64 (rows,), 0 or 1.
        prior: the coefficients that the penalty pulls to.

    Returns:
        The coefficients float64 (features,), and the penalised log-likelihood.
    """
    return _maximise(features, happened, prior, _bernoulli, pseudo=0.5)


def fit_poisson(features: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Fit E(count) = exp(b'x) by penalised maximum likelihood, with half an event added; arguments as before."""
    return _maximise(features, counts, np.zeros(len(features)), _poisson, pseudo=0.5)[0]


def _bernoulli(eta: np.ndarray, happened: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    p = expit(eta)
    return happened * eta - np.logaddexp(0, eta), happened - p, p * (1 - p)


def _poisson(eta: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rate = np.exp(np.minimum(eta, 50))
    return counts * eta - rate, counts - rate, rate


def _maximise(
    features: np.ndarray, values: np.ndarray, prior: np.ndarray, of: Likelihood, pseudo: float
) -> tuple[np.ndarray, float]:
    """Maximise by Newton's steps, halved until the objective rises."""
    center = features.mean(axis=1)
    rows = np.column_stack([features, center, center])
    values = np.concatenate([values, [1.0, 0.0]])
    weights = np.concatenate([np.ones(features.shape[1]), [pseudo, pseudo]])
    penalty = np.full(len(rows), RIDGE)
    penalty[0] = 0

    def evaluate(coefficients: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        eta = sum((b * x for b, x in zip(coefficients, rows, strict=True)), np.zeros(rows.shape[1]))
        likelihood, slope, curvature = of(eta, values)
        away = coefficients - prior
        return (
            float(np.sum(weights * likelihood) - 0.5 * np.sum(penalty * away * away)),
            weights * slope,
            weights * curvature,
        )

    coefficients = prior.copy()
    objective, slope, curvature = evaluate(coefficients)
    for _ in range(MAX_STEPS):
        gradient = np.array([np.sum(row * slope) for row in rows]) - penalty * (coefficients - prior)
        hessian = np.diag(penalty + 1e-9)
        for a, row in enumerate(rows):
            weighted = row * curvature
            for b in range(a + 1):
                hessian[a, b] += np.sum(weighted * rows[b])
                hessian[b, a] = hessian[a, b]
        step, before = np.linalg.solve(hessian, gradient), objective
        for halvings in range(30):
            tried = coefficients + step * 0.5**halvings
            found = evaluate(tried)
            if found[0] >= before:
                coefficients, (objective, slope, curvature) = tried, found
                break
        if objective - before <= TOLERANCE * (1 + abs(before)):
            break
    return coefficients, objective


def fit_rank_curve(ranks: np.ndarray, items: int) -> np.ndarray:
    """Fit the distribution of new items over the ranks 0, 1, ... of a list: p(r) = (b + 1 + r)^-s / Z.

    This law of Zipf and Mandelbrot falls strictly, so that it keeps the order of the list.

    Args:
        ranks: int (targets,), the rank of each new item among those that the user did not have.
        items: the length of the list.

    Returns:
        float64 (3,): b, s and log Z.
    """
    found = np.array([1.0, 1.0, 0.0])
    all_ranks, lowest = np.arange(items), np.inf
    for offset in OFFSETS if len(ranks) else ():
        logs, own = np.log(offset + 1 + all_ranks), np.log(offset + 1 + ranks).mean()

        def loss(exponent: float, logs: np.ndarray = logs, own: float = own) -> float:
            return float(exponent * own + np.log(np.sum(np.exp(-exponent * logs))))

        result = minimize_scalar(loss, bounds=(MIN_EXPONENT, MAX_EXPONENT), method="bounded")
        if result.fun < lowest:
            lowest, found = result.fun, np.array([offset, result.x, 0.0])
    found[2] = np.log(np.sum((found[0] + 1 + all_ranks) ** -found[1]))
    return found


def rank_probabilities(curve: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return p(r) of `fit_rank_curve`."""
    offset, exponent, log_sum = curve
    return np.exp(-exponent * np.log(offset + 1 + ranks) - log_sum)
