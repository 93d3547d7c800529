"""Weights of users by a power of their degree, so that users with many edges do not count for more."""

import numpy as np

SUM_BITS = 52  # the whole multiples that weights are made of add up to at most 2^53, up to which float64 has them all


def exact_degree_weights(degrees: np.ndarray, exponent: float) -> np.ndarray:
    """degree^-exponent, rounded so that sums of these weights have no rounding error; zeros for users without an edge.

    The weights are whole multiples of their `grain`, at least one each. Any sum over some of the users, and any
    difference of such sums, is a whole multiple of it that float64 has exactly; so sums have the same bits in whatever
    order, and by whatever additions and subtractions, they came about. An exponent of 0 gives ones.

    Returns:
        float64 (users,).
    """
    powers, size = _degree_powers(degrees, exponent), weight_quantum(degrees, exponent)
    return np.where(degrees > 0, np.maximum(np.rint(powers / size), 1.0), 0.0) * size


def weight_quantum(degrees: np.ndarray, exponent: float) -> float:
    """The power of two whose multiples `exact_degree_weights` are: 2^-52 of their sum, or up to half of that."""
    _, bits = np.frexp(_degree_powers(degrees, exponent).sum())
    return float(np.ldexp(1.0, int(bits) - SUM_BITS))


def degree_weights_or_ones(degrees: np.ndarray, exponent: float) -> np.ndarray:
    """degree^-exponent, float64, scaled to mean one over the users with an edge; 1 for the others."""
    weights, active = np.ones(len(degrees)), degrees > 0
    powers = _degree_powers(degrees, exponent)[active]
    weights[active] = powers / powers.mean()
    return weights


def _degree_powers(degrees: np.ndarray, exponent: float) -> np.ndarray:
    powers, active = np.zeros(len(degrees)), degrees > 0
    powers[active] = degrees[active].astype(np.float64) ** -exponent
    return powers
