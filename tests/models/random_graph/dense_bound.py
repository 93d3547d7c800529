"""The bound of the random-graph model, in NumPy and float64, straight from Paquet and Koenigstein (2014)."""

import numpy as np
from scipy.special import gammaln, psi

from oneclass.models.random_graph.posterior import VertexPosterior


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


def lam(xi):
    """Jaakkola and Jordan's lambda, below eq. 11."""
    return (1 / (1 + np.exp(-xi)) - 0.5) / (2 * xi)


def dense_bound(users, items, taus, g, h, xi):
    """Eq. 12 on a given H: expectation of log p_xi plus entropy; every constant kept."""
    mean, second = dense_moments(users, items)
    edges = -np.log1p(np.exp(-xi)) + (g - 0.5) * mean - xi / 2 - lam(xi) * (second - xi**2)
    total = (h * edges).sum()
    used = []
    for side, which in ((users, 0), (items, 2)):
        for part, tau in (("", which), ("bias_", which + 1)):
            if np.isfinite(side[part + "precision"]).all():
                used.append(tau)
                gamma = taus.shape[tau], taus.rate[tau]
                total += _gaussians(side[part + "mean"], side[part + "precision"], *gamma)
    for tau in used:
        shape, rate, alpha, beta = taus.shape[tau], taus.rate[tau], taus.alpha, taus.beta
        log_tau = psi(shape) - np.log(rate)
        total += alpha * np.log(beta) - gammaln(alpha) + (alpha - 1) * log_tau - beta * shape / rate
        total += shape - np.log(rate) + gammaln(shape) + (1 - shape) * psi(shape)
    return total


def _gaussians(mean, precision, shape, rate):
    log_density = 0.5 * (psi(shape) - np.log(rate) - np.log(2 * np.pi))
    log_density -= 0.5 * shape / rate * (mean**2 + 1 / precision)
    return (log_density + 0.5 * np.log(2 * np.pi * np.e / precision)).sum()


def random_side(rng, count, factors, clamped=False):
    side = VertexPosterior.prior(count, factors, clamped=clamped)
    side.mean[:] = rng.normal(0, 0.6, side.mean.shape)
    side.precision[:] = rng.uniform(0.5, 6, side.precision.shape)
    if not clamped:
        side.bias_mean[:] = rng.normal(0, 0.8, count)
        side.bias_precision[:] = rng.uniform(0.5, 6, count)
    return side
