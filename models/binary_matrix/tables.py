"""Tables of q, in the layout of `models.binary_matrix.kernels`."""

import numpy as np

from oneclass.models.numerics.random_numbers import normals, purpose
from oneclass.models.numerics.simd import pad_width

LANES = 8


def half_row_width(factors: int) -> int:
    """W, of half a row."""
    return int(pad_width(factors, LANES))


def draw_initial_table(seed: int, side: str, shape: tuple[int, int], scale: float, variance: float) -> np.ndarray:
    """Small random means, because u = v = 0 is a fixed point, with variances of the prior; float32 (vertices, 2 W).

    Args:
        shape: (vertices, K).
        scale: standard deviation of the means.
    """
    vertices, factors = shape
    width = half_row_width(factors)
    rows = np.zeros((vertices, 2 * width), dtype=np.float32)
    rows[:, :factors] = normals(seed, purpose(side), vertices, factors) * np.float32(scale)
    rows[:, width : width + factors] = variance
    return rows


def kl_divergence(table: np.ndarray, prior: float) -> float:
    """KL[q || p] of a table, or of z, where p has this variance."""
    mean, variance = np.split(np.asarray(table, dtype=np.float64), 2, axis=-1)
    mean, variance = mean[variance > 0], variance[variance > 0] / prior
    return 0.5 * (mean**2 / prior + variance - 1 - np.log(variance)).sum()
