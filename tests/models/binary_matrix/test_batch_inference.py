"""The batch baseline of the benchmark against the dense equations, entry by entry."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from benchmarks.accuracy.batch_variational import BatchInference
from oneclass.models.binary_matrix.settings import BinaryMatrixSettings

GENERATOR = np.random.default_rng(8)
ONES = csr_matrix((GENERATOR.random((9, 7)) < 0.3).astype(np.float32))
SETTINGS = BinaryMatrixSettings(factors=2, user_variance=0.5, item_variance=0.8, initial_scale=0.5)


def naive_factor(batch: BatchInference, user: int, k: int) -> tuple[float, float]:
    """Mean and variance of q(u_ik) that maximize the bound, all else given, by a loop over the row's entries."""
    precision, slope = 1 / SETTINGS.user_variance, 0.0
    for item in range(ONES.shape[1]):
        u, v, s, t = batch.u[user], batch.v[item], batch.u_variance[user], batch.v_variance[item]
        mean = float(u @ v) + batch.z[0]
        xi = np.sqrt(mean**2 + float(s @ (v**2 + t) + (u**2) @ t) + batch.z[1])
        twice_lambda = np.tanh(xi / 2) / (2 * xi)
        precision += twice_lambda * (v[k] ** 2 + t[k])
        slope += v[k] * (ONES[user, item] - 0.5 - twice_lambda * (mean - u[k] * v[k]))
    return slope / precision, 1 / precision


def test_the_first_factor_of_a_sweep_is_the_maximizer():
    batch, after = (BatchInference(ONES, SETTINGS, seed=1) for _ in range(2))
    after.sweep()
    batch.z[:] = after.z  # which a sweep updates first
    for user in range(ONES.shape[0]):
        mean, variance = naive_factor(batch, user, 0)
        assert (after.u[user, 0], after.u_variance[user, 0]) == pytest.approx((mean, variance), rel=1e-4)


def test_the_bound_never_falls():
    batch, bounds = BatchInference(ONES, SETTINGS, seed=1), []
    for _ in range(30):
        batch.sweep()
        bounds.append(batch.posterior().bound(ONES, SETTINGS))
    assert (np.diff(bounds) > -1e-4 * abs(bounds[0])).all() and bounds[-1] > bounds[0] + 0.01
