"""A counter-based random generator: a draw depends on its key and its number, not on the draws before it.

The key of a stream is made of (seed, purpose, iteration, unit), where the unit is a user, an item or a sample. The
draws of a stream are numbered from 0. So a result does not depend on how many threads ran, or in which order. The
mixing function is that of SplitMix64 (Steele, Lea and Flood 2014).
"""

import zlib

import numpy as np
from numba import njit, prange

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def purpose(name: str) -> np.uint64:
    """The number of a purpose, such as `"bpr negatives"`; the same on every run and machine."""
    return np.uint64(zlib.crc32(name.encode()))


@njit(cache=True, inline="always")
def mix(bits):
    """SplitMix64's finalizer, a bijection of uint64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@njit(cache=True, inline="always")
def stream(seed, purpose, iteration, unit):
    """The uint64 key of one stream; every argument a non-negative integer."""
    key = mix(np.uint64(seed) + GOLDEN)
    key = mix((key ^ np.uint64(purpose)) + GOLDEN)
    key = mix((key ^ np.uint64(iteration)) + GOLDEN)
    return mix((key ^ np.uint64(unit)) + GOLDEN)


@njit(cache=True, inline="always")
def bits(key, draw):
    """Draw number `draw` of a stream: 64 uniform bits."""
    return mix(key + (np.uint64(draw) + np.uint64(1)) * GOLDEN)


@njit(cache=True, inline="always")
def uniform(key, draw):
    """Uniform in the open interval (0, 1), float64."""
    return (np.float64(bits(key, draw) >> np.uint64(12)) + 0.5) * (1.0 / 4503599627370496.0)


@njit(cache=True, inline="always")
def below(key, draw, n):
    """Uniform over the integers 0 .. n - 1, for n up to 2^32 (Lemire's multiply-shift; bias below n / 2^32)."""
    return np.int64(((bits(key, draw) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@njit(cache=True, inline="always")
def normal(key, draw):
    """Standard normal, float64, by Box and Muller, from the draws number 2 `draw` and 2 `draw` + 1 of the stream."""
    radius = np.sqrt(-2.0 * np.log(uniform(key, 2 * draw)))
    return radius * np.cos(2.0 * np.pi * uniform(key, 2 * draw + 1))


@njit(cache=True, parallel=True, nogil=True)
def normals(seed, purpose, rows, columns):
    """Standard normals, float32 (rows, columns); row i comes from the stream of unit i, iteration 0."""
    out = np.empty((rows, columns), dtype=np.float32)
    for row in prange(rows):
        key = stream(seed, purpose, 0, row)
        for column in range(columns):
            out[row, column] = normal(key, column)
    return out
