"""q(u) of users who were not in training, with items and z fixed; `models.binary_matrix.model` defines the symbols.

With 2 lambda_j at the best xi_j, the bound of one user has in the means m and the variances s of q(u)

    gradient   g = sum_j {(x_j - 1/2) - 2 lambda_j E a_j} E v_j - m (1 / variance + sum_j 2 lambda_j var v_j)
    best       s_k = 1 / (1 / variance + sum_j 2 lambda_j E[v_jk^2]).

Updates of xi and q(u) by turns climb slowly: they take the curvature of Jaakkola's bound, 2 lambda, where that of the
logistic function is a fifteenth for a logit of -5. Here m moves by Newton's method. With xi^2 = E a^2 moving along,
the curvature along v_j is

    w_j = 2 lambda - (E a)^2 / xi^2 {2 lambda - sigma'(xi)},    sigma'(xi) = (1 - (2 xi 2 lambda)^2) / 4,

which is positive; terms with m var v_j are left out of it, which changes the way to the maximum, not the maximum. Every
item is visited in each step, items beside each other in vector lanes.
"""

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.logistic_bound import FAST, best_bound_of_square, lambda_of_square
from oneclass.models.numerics.simd import pad_width

ITEMS_PER_STRIP = 512  # items whose numbers are kept in the first-level cache between the sums over them
SLACK = 1e-6  # of a bound, which is a sum of float32: a smaller loss is rounding
ROWS_PER_PASS = 4  # factors whose products with another are summed in one loop
HALF = np.float32(0.5)


def transpose_table(items: np.ndarray, factors: int) -> tuple[np.ndarray, np.ndarray]:
    """E v and var v of a table in the layout of `models.binary_matrix.kernels`, both float32 (K, items), K rounded up
    to a multiple of ROWS_PER_PASS by rows of zeros.
    """
    width, rows = items.shape[1] // 2, pad_width(factors, ROWS_PER_PASS)
    mean, variance = (np.ascontiguousarray(items[:, start : start + rows].T) for start in (0, width))
    return mean, variance


@njit(cache=True, parallel=True, nogil=True, fastmath=FAST)
def fold_in(indptr, indices, items, factors, z, prior_precision, limits, bounds, users):
    """Fill the table `users` with the maximum of the bound over q(u) and xi, with items and z fixed.

    Args:
        indptr, indices: the histories.
        items, factors: `transpose_table`, and K.
        z: (mean, variance), float32.
        limits: the largest number of steps, and the tolerance at which they end: the largest change of a mean as a
            share of the largest mean.
        bounds: int64, runs of users.
    """
    width = users.shape[1] // 2
    for shard in prange(len(bounds) - 1):
        mean, step, H = np.empty(factors), np.empty(factors), np.empty((factors, len(items[0])))
        for row in range(bounds[shard], bounds[shard + 1]):
            own = users[row]
            own[:], mean[:] = 0, 0
            own[width : width + factors] = 1 / prior_precision
            history = indices[indptr[row] : indptr[row + 1]]
            _maximize_user(history, items, z, prior_precision, limits, mean, own[width : width + factors], step, H)
            for k in range(factors):
                own[k] = mean[k]


@njit(cache=True, nogil=True, fastmath=FAST)
def _maximize_user(history, items, z, prior_precision, limits, mean, variance, step, H):
    """Newton's steps of one user; one after which the bound is lower is halved."""
    factors, (iterations, tolerance) = len(mean), limits
    before, g, precision = -np.inf, np.empty(factors), np.empty(factors)
    for _ in range(iterations):
        value = _bound_and_gradient(history, items, z, prior_precision, mean, variance, g, precision, H)
        if value < before - SLACK * abs(before):
            for k in range(factors):
                step[k] *= 0.5
                mean[k] -= step[k]
            continue
        before = value
        solve(H, g)
        change, largest = 0.0, 0.0
        for k in range(factors):
            step[k] = g[k]
            mean[k] += g[k]
            variance[k] = 1 / precision[k]
            change, largest = max(change, abs(g[k])), max(largest, abs(mean[k]))
        if change <= tolerance * largest:
            break


@njit(cache=True, nogil=True, fastmath=FAST)
def _bound_and_gradient(history, items, z, prior_precision, mean, variance, g, precision, H):
    """The bound at q(u), less what does not depend on it; fills the gradient, 1 / best s, and the lower half of H (K, K
    or more).
    """
    means, variances = items
    factors, value, place = len(mean), 0.0, 0
    for k in range(factors):
        g[k], precision[k], H[k, :] = -prior_precision * mean[k], prior_precision, 0
        H[k, k] = prior_precision
        value -= 0.5 * (prior_precision * (mean[k] * mean[k] + variance[k]) - np.log(variance[k]))
    work = np.empty((6, ITEMS_PER_STRIP), dtype=np.float32)  # unpacked, its rows would be strided to numba
    logits, squares, pulls, slopes, bends, bent = work[0], work[1], work[2], work[3], work[4], work[5]
    for start in range(0, means.shape[1], ITEMS_PER_STRIP):
        size = min(ITEMS_PER_STRIP, means.shape[1] - start)
        _logits(means, variances, start, size, z, mean, variance, logits, squares)
        value += _maximize_xi(size, logits, squares, pulls, slopes, bends)
        while place < len(history) and history[place] < start + size:
            slopes[history[place] - start] += 1
            value += logits[history[place] - start]
            place += 1
        for k in range(factors):
            v, spread = means[k, start : start + size], variances[k, start : start + size]
            slope, square, wide = _sum_strip(slopes, pulls, v, spread, size)
            for j in range(size):
                bent[j] = bends[j] * v[j]
            g[k] += slope - mean[k] * wide
            precision[k] += square + wide
            H[k, k] += wide
            for other in range(0, k + 1, ROWS_PER_PASS):
                one, two, three, four = _dot_products(bent, means, other, start, size)
                H[k, other] += one
                H[k, other + 1] += two
                H[k, other + 2] += three
                H[k, other + 3] += four
    return value


@njit(cache=True, nogil=True, fastmath=FAST)
def _logits(means, variances, start, size, z, mean, variance, logits, squares):
    """E a, and xi^2 = E a^2, of a run of items."""
    logits[:size], squares[:size] = z[0], z[1]
    for k in range(len(mean)):
        v, spread = means[k, start : start + size], variances[k, start : start + size]
        m, s = np.float32(mean[k]), variance[k]
        both = m * m + s
        for j in range(size):
            logits[j] += m * v[j]
            squares[j] += s * v[j] * v[j] + both * spread[j]
    for j in range(size):
        squares[j] += logits[j] * logits[j]


@njit(cache=True, nogil=True, fastmath=FAST)
def _maximize_xi(size, logits, squares, pulls, slopes, bends):
    """Fill 2 lambda, the slopes as of zeros, and the curvatures w_j; the sum of the bounds, as of zeros.

    In several loops: one over so many arrays would not go to vector lanes.
    """
    value = np.float32(0)
    for j in range(size):
        pulls[j] = np.float32(2) * lambda_of_square(squares[j])
    for j in range(size):
        value += best_bound_of_square(squares[j]) - HALF * logits[j]
    for j in range(size):
        logit, square, pull = logits[j], squares[j], pulls[j]
        steep = np.float32(0.25) - square * pull * pull
        slopes[j] = -HALF - pull * logit
        bends[j] = pull - logit * logit / (square + np.float32(1e-30)) * (pull - steep)
    return np.float64(value)


@njit(cache=True, nogil=True, fastmath=FAST)
def _sum_strip(slopes, pulls, v, spread, size):
    """The sums over a run of items of slope v, 2 lambda v^2 and 2 lambda var v."""
    slope, square, wide = np.float32(0), np.float32(0), np.float32(0)
    for j in range(size):
        slope += slopes[j] * v[j]
        square += pulls[j] * v[j] * v[j]
        wide += pulls[j] * spread[j]
    return slope, square, wide


@njit(cache=True, nogil=True, fastmath=FAST)
def _dot_products(bent, means, other, start, size):
    """The products of a vector with a run of ROWS_PER_PASS rows from `other` on, for which it is loaded once."""
    a, b = means[other, start : start + size], means[other + 1, start : start + size]
    c, d = means[other + 2, start : start + size], means[other + 3, start : start + size]
    first, second, third, fourth = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    for j in range(size):
        first += bent[j] * a[j]
        second += bent[j] * b[j]
        third += bent[j] * c[j]
        fourth += bent[j] * d[j]
    return first, second, third, fourth


@njit(cache=True, nogil=True)
def solve(P, h):
    """Overwrite h with P^-1 h: float64 (n,) and (n, n or more), by Cholesky, row by row.

    Only the lower triangle of P is read; it is overwritten by the factor.
    """
    for row in range(len(h)):
        for column in range(row):
            total = P[row, column]
            for k in range(column):
                total -= P[row, k] * P[column, k]
            P[row, column] = total / P[column, column]
            P[row, row] -= P[row, column] * P[row, column]
        P[row, row] = np.sqrt(P[row, row])
        for k in range(row):
            h[row] -= P[row, k] * h[k]
        h[row] /= P[row, row]
    for row in range(len(h) - 1, -1, -1):
        for k in range(row + 1, len(h)):
            h[row] -= P[k, row] * h[k]
        h[row] /= P[row, row]
