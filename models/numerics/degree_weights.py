"""Weights of users by a power of their degree, so that a user with many edges need not count for more."""

import numpy as np


def degree_weights(degrees: np.ndarray, exponent: float) -> np.ndarray:
    """degree^-exponent, float64, scaled to mean one over the users with an edge; zeros for the others."""
    weights = _powers(degrees, exponent)
    weights *= np.count_nonzero(degrees) / weights.sum()
    return weights


def degree_weights_or_ones(degrees: np.ndarray, exponent: float) -> np.ndarray:
    """The same with ones for users without an edge.

    Here the powers are divided by their mean, above they are multiplied by its inverse: the last bits differ, and
    each of the two has fits that were published with it.
    """
    weights, active = np.ones(len(degrees)), degrees > 0
    powers = _powers(degrees, exponent)[active]
    weights[active] = powers / powers.mean()
    return weights


def _powers(degrees: np.ndarray, exponent: float) -> np.ndarray:
    powers, active = np.zeros(len(degrees)), degrees > 0
    powers[active] = degrees[active].astype(np.float64) ** -exponent
    return powers
