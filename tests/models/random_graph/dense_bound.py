"""The bound and the updates of the random-graph model, in NumPy and float64, from Paquet and Koenigstein (2014)."""

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import gammaln, psi

from oneclass.models.numerics.adjacency import copy_pattern
from oneclass.models.numerics.logistic_bound import GaussianFactors
from oneclass.models.random_graph.inference import (
    HiddenGraph,
    PrecisionPosterior,
    RandomGraphPosterior,
)


def float_sides(posterior):
    """Float64 copies of both sides: dictionaries with eta, omega, bias and its precision."""
    names = "mean", "precision", "bias_mean", "bias_precision"
    both = posterior.users, posterior.items
    return tuple({name: getattr(side, name).astype(float) for name in names} for side in both)


def dense_moments(users, items):
    """E[a] and E[a^2] of every pair, (M, N) each."""
    mean = users["mean"] @ items["mean"].T + users["bias_mean"][:, None] + items["bias_mean"]
    u_second, v_second = (side["mean"] ** 2 + 1 / side["precision"] for side in (users, items))
    variance = u_second @ v_second.T - users["mean"] ** 2 @ (items["mean"] ** 2).T
    variance += 1 / users["bias_precision"][:, None] + 1 / items["bias_precision"]
    return mean, mean**2 + variance


def logistic_lambda(xi):
    """Jaakkola and Jordan's lambda, below eq. 11."""
    return (1 / (1 + np.exp(-xi)) - 0.5) / (2 * xi)


def dense_bound(users, items, taus, g, h, xi):
    """Eq. 12 on a given H: expectation of log p_xi plus entropy; every constant kept."""
    mean, second = dense_moments(users, items)
    edges = -np.log1p(np.exp(-xi)) + (g - 0.5) * mean - xi / 2 - logistic_lambda(xi) * (second - xi**2)
    total = (h * edges).sum()
    used = []
    for side, which in ((users, 0), (items, 2)):
        for part, tau in (("", which), ("bias_", which + 1)):
            if np.isfinite(side[part + "precision"]).all():
                used.append(tau)
                gamma = taus.shape[tau], taus.rate[tau]
                total += _gaussian_terms(side[part + "mean"], side[part + "precision"], *gamma)
    for tau in used:
        shape, rate, alpha, beta = taus.shape[tau], taus.rate[tau], 0.01, 0.01
        log_tau = psi(shape) - np.log(rate)
        total += alpha * np.log(beta) - gammaln(alpha) + (alpha - 1) * log_tau - beta * shape / rate
        total += shape - np.log(rate) + gammaln(shape) + (1 - shape) * psi(shape)
    return total


def _gaussian_terms(mean, precision, shape, rate):
    log_density = 0.5 * (psi(shape) - np.log(rate) - np.log(2 * np.pi))
    log_density -= 0.5 * shape / rate * (mean**2 + 1 / precision)
    return (log_density + 0.5 * np.log(2 * np.pi * np.e / precision)).sum()


def random_side(rng, count, factors, clamped=False):
    side = GaussianFactors.prior(count, factors, clamped=clamped)
    side.mean[:] = rng.normal(0, 0.6, side.mean.shape)
    side.precision[:] = rng.uniform(0.5, 6, side.precision.shape)
    if not clamped:
        side.bias_mean[:] = rng.normal(0, 0.8, count)
        side.bias_precision[:] = rng.uniform(0.5, 6, count)
    return side


def updated_factors(side, other, g, h, xi, tau, step):
    """Eq. 15, 17 and 18 for every vertex of `side`; g, h and xi are (vertices, others)."""
    new = {name: array.copy() for name, array in side.items()}
    factors = side["mean"].shape[1]
    for vertex in range(len(g)):
        precision, z = tau * np.eye(factors), np.zeros(factors)
        for n in np.nonzero(h[vertex])[0]:
            weight, x = 2 * logistic_lambda(xi[vertex, n]), other["mean"][n]
            precision += weight * (np.outer(x, x) + np.diag(1 / other["precision"][n]))
            z += (g[vertex, n] - 0.5 - weight * (other["bias_mean"][n] + side["bias_mean"][vertex])) * x
        omega, eta = side["precision"][vertex], side["mean"][vertex]
        precision = step * precision + (1 - step) * np.diag(omega)
        new["mean"][vertex] = np.linalg.solve(precision, step * z + (1 - step) * omega * eta)
        new["precision"][vertex] = np.diag(precision)
    return new


def updated_biases(side, other, g, h, xi, tau, step):
    """Eq. 19 for every vertex of `side`."""
    new = {name: array.copy() for name, array in side.items()}
    rest = side["mean"] @ other["mean"].T + other["bias_mean"]
    weights = h * 2 * logistic_lambda(xi)
    precision = step * (weights.sum(1) + tau) + (1 - step) * side["bias_precision"]
    z = step * (h * (g - 0.5) - weights * rest).sum(1)
    z += (1 - step) * side["bias_precision"] * side["bias_mean"]
    new["bias_mean"], new["bias_precision"] = z / precision, precision
    return new


M, N = 30, 20


def random_case(factors, *, seed=0):
    """A posterior, and a fixed H as a HiddenGraph and as dense g and h."""
    rng = np.random.default_rng(seed)
    taus = PrecisionPosterior.from_mean(1.0, (M, N), factors)
    taus.rate = taus.shape / np.array([1.7, 0.6, 0.9, 2.1])
    g = rng.random((M, N)) < 0.3
    h = g | (rng.random((M, N)) < 0.4)
    g[3] = h[3] = False  # a user and an item without edges
    g[:, 5] = h[:, 5] = False
    parts = [copy_pattern(csr_matrix(part)) for part in (g, h & ~g, g.T, (h & ~g).T)]
    q = RandomGraphPosterior(random_side(rng, M, factors, clamped=True), random_side(rng, N, factors), taus)
    return q, HiddenGraph(*parts), g.astype(float), h.astype(float)


def assert_side(side, expected):
    """Assert that the arrays of one side are those of a dictionary."""
    for name, array in expected.items():
        np.testing.assert_allclose(getattr(side, name), array, rtol=2e-5, atol=2e-5, err_msg=name)
