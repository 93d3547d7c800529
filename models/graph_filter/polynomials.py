"""Polynomials p(S) of a symmetric matrix S with eigenvalues from 0 to 1, applied by products with S alone."""

from collections.abc import Callable

import numpy as np

Product = Callable[[np.ndarray], np.ndarray]  # z -> S z, float32 (items, width)


def plateau_coefficients(order: int, flatness: float) -> np.ndarray:
    """Coefficients c_0 .. c_K of the plateau in the Chebyshev polynomials of L~ = I - 2 S, float64 (K + 1,).

    Kim, Sung, Han and Lee, "Graph spectral filtering with Chebyshev interpolation for recommendation", 2025, section
    4.2. The plateau is 1/2 + |t|^phi / 2 for t < 0 and 1/2 - t^phi / 2 above. As in the authors' code, the target at
    the Chebyshev node x_j is the plateau at t_j = cos((K - j) pi / K), and both are rounded to three decimals.

    Args:
        order: K, at least 1.
        flatness: phi.
    """
    count = order + 1
    nodes = np.cos((count - 0.5 - np.arange(count)) * np.pi / count)
    points = np.cos((order - np.arange(count)) * np.pi / order).round(3)
    targets = (0.5 - np.sign(points) * np.abs(points) ** flatness / 2).round(3)
    coefficients = np.polynomial.chebyshev.chebvander(nodes, order).T @ targets * 2 / count
    coefficients[0] /= 2
    coefficients[np.abs(coefficients) < 1e-12] = 0  # the even ones: the plateau is odd about 1/2
    return coefficients


def apply_chebyshev(coefficients: np.ndarray, times: Product, block: np.ndarray) -> np.ndarray:
    """sum_k c_k T_k(L~) z with L~ = I - 2 S, by T_k = 2 L~ T_(k-1) - T_(k-2); float32 (items, width)."""
    before, last = block, block - 2 * times(block)
    total = np.float32(coefficients[0]) * before + np.float32(coefficients[1]) * last
    for coefficient in np.trim_zeros(coefficients, "b")[2:].astype(np.float32):
        following = times(last)
        following *= -2
        following += last
        following *= 2
        following -= before
        before, last = last, following
        if coefficient:
            total += coefficient * last
    return total


def apply_decay(time: float, terms: int, times: Product, block: np.ndarray) -> np.ndarray:
    """sum_(j <= terms) (-h S)^j / j! z for h = time: a step of dz/dt = -S z, by Euler (1) or Runge-Kutta (4 terms).

    Choi, Hong, Park and Cho, "Blurring-sharpening process models for collaborative filtering", 2023, the sharpening
    process. float32 (items, width).
    """
    total, term = block.copy(), block
    for number in range(1, terms + 1):
        term = times(term) * np.float32(-time / number)
        total += term
    return total
