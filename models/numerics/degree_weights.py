"""Weights of users by a power of their degree, so that users with many edges do not count for more."""

import numpy as np


def degree_weights(degrees: np.ndarray, exponent: float) -> np.ndarray:
    """degree^-exponent, float64, scaled to mean one over the users with an edge; zeros for the others."""
    weights = _powers(degrees, exponent)
    weights *= np.count_nonzero(degrees) / weights.sum()
    return weights


def degree_weights_or_ones(degrees: np.ndarray, exponent: float) -> np.ndarray:
    """The same, but 1 for a user without an edge.

    This function divides the powers by their mean, the other multiplies them by its inverse. The last bits differ, and
    fits have been published with each of the two, so both stay.
    """
    weights, active = np.ones(len(degrees)), degrees > 0
    powers = _powers(degrees, exponent)[active]
    weights[active] = powers / powers.mean()
    return weights


def _powers(degrees: np.ndarray, exponent: float) -> np.ndarray:
    powers, active = np.zeros(len(degrees)), degrees > 0
    powers[active] = degrees[active].astype(np.float64) ** -exponent
    return powers
