"""The bound of Jaakkola and Jordan on the logistic function, and float32 approximations of its parts.

Jaakkola and Jordan, "Bayesian parameter estimation via variational methods", 2000, eq. 10 and 11: for every xi,

    log sigma(a) >= log sigma(xi) + (a - xi) / 2 - lambda(xi) (a^2 - xi^2),
    lambda(xi) = (sigma(xi) - 1/2) / (2 xi) = tanh(xi / 2) / (4 xi),    lambda(0) = 1/8.

If a has a posterior, the best xi^2 is E a^2. Kernels compute that square, so functions named `of_square` take xi^2, and
the others take xi. Errors are relative, against float64, for xi up to 300. Times are nanoseconds for one number in a
loop over 250,000.
"""

from typing import Any

import numpy as np
from numba import njit

FAST = {"reassoc", "contract", "arcp", "afn", "nsz"}  # NaN stays NaN
PLAIN: dict[str, Any] = {"cache": True, "fastmath": {"contract"}, "error_model": "numpy", "nogil": True}


def lambda_of_xi(xi: float) -> float:
    """lambda(xi) in float64, for one xi > 0."""
    return float(np.tanh(xi / 2) / (4 * xi))


@njit(cache=True, fastmath=set(), forceinline=True)
def best_square(mean, variance):
    """The best xi^2, E a^2, float32. The product is rounded before the sum, and the sum after it.

    `fastmath` is empty, not absent: without it numba takes the caller's, and then it depends on how the caller was
    optimized whether the product and the sum become one instruction. Published parameters depend on the rounding.
    """
    return mean * mean + variance


@njit(**PLAIN)
def exp_of_minus(x):
    """exp(-x), float32, for 0 <= x <= 80; error below 1e-7. It calls nothing, so that loops over it vectorize."""
    whole = np.int32(x * np.float32(1.44269504) + np.float32(0.5))
    rest = np.float32(whole) * np.float32(0.693145752) - x + np.float32(whole) * np.float32(1.42860677e-6)
    total = np.float32(1 / 5040)
    for inverse in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
        total = total * rest + np.float32(inverse)
    return total * np.int32((127 - whole) << 23).view(np.float32)  # times 2^-whole, whose bits are its exponent


@njit(**PLAIN)
def lambda_of_square(xi_squared):
    """lambda(xi), float32, from xi^2; its Taylor series below xi = 1/4; error below 3e-7; 0.3 ns."""
    xi = np.sqrt(xi_squared)
    tail = exp_of_minus(min(xi, np.float32(80)))
    far = (np.float32(1) - tail) / ((np.float32(1) + tail) * np.float32(4) * max(xi, np.float32(0.25)))
    near = np.float32(0.125) - xi_squared * (np.float32(1 / 96) - xi_squared * np.float32(1 / 960))
    return near if xi < np.float32(0.25) else far


@njit(**PLAIN)
def best_bound_of_square(xi_squared):
    """log sigma(xi) - xi / 2, float32, from xi^2: the expected bound without its term a / 2, if E a^2 is xi^2.

    log(1 + x) is a series in x / (2 + x); error below 3e-7; 0.5 ns.
    """
    xi = np.sqrt(xi_squared)
    tail = exp_of_minus(min(xi, np.float32(80)))
    ratio = tail / (np.float32(2) + tail)
    total = np.float32(1 / 15)
    for inverse in (1 / 13, 1 / 11, 1 / 9, 1 / 7, 1 / 5, 1 / 3, 1.0):
        total = total * ratio * ratio + np.float32(inverse)
    return np.float32(-0.5) * xi - np.float32(2) * ratio * total
