"""A penalised logistic regression; its sums are numpy's own, so that the bits do not depend on the threads of BLAS."""

import numpy as np
from scipy.special import expit

RIDGE = 1.0  # pulls the coefficients, not the constant, towards their prior
MAX_STEPS = 50
TOLERANCE = 1e-8


def fit_logistic(features: np.ndarray, happened: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, float]:
    """Fit P(happened) = sigma(b'x) by penalised maximum likelihood; half an event and half a non-event are added.

    By Newton's steps, halved until the objective rises.

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
    penalty = np.full(len(rows), RIDGE)
    penalty[0] = 0

    def evaluate(coefficients: np.ndarray) -> tuple[float, np.ndarray]:
        eta = sum((b * x for b, x in zip(coefficients, rows, strict=True)), np.zeros(rows.shape[1]))
        likelihood, away = happened * eta - np.logaddexp(0, eta), coefficients - prior
        return float(np.sum(weights * likelihood) - 0.5 * np.sum(penalty * away * away)), expit(eta)

    coefficients = prior.copy()
    objective, p = evaluate(coefficients)
    for _ in range(MAX_STEPS):
        slope, curvature = weights * (happened - p), weights * (p * (1 - p))
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
                coefficients, (objective, p) = tried, found
                break
        if objective - before <= TOLERANCE * (1 + abs(before)):
            break
    return coefficients, objective
