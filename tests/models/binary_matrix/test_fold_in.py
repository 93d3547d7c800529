"""Folding in by Newton's method: against updates by turns in float64, where steps are too long, and by its steps."""

import numpy as np
import pytest

from oneclass.models.binary_matrix.fold_in import ITEMS_PER_STRIP, fold_in, transpose_table
from oneclass.models.binary_matrix.tables import half_row_width
from oneclass.models.numerics.partition import partition_evenly

ITEMS, FACTORS = ITEMS_PER_STRIP + 200, 5  # two runs of items, and factors that fill no whole group


def problem(scale, users=6, seed=3):
    """A table of items, and dense histories of some users, the first one's empty."""
    generator = np.random.default_rng(seed)
    width = half_row_width(FACTORS)
    items = np.zeros((ITEMS, 2 * width), dtype=np.float32)
    items[:, :FACTORS] = generator.normal(0, scale, (ITEMS, FACTORS))
    items[:, width : width + FACTORS] = generator.uniform(0.01, 0.2, (ITEMS, FACTORS))
    likes = generator.random((users, ITEMS)) < 0.04
    likes[0] = False
    return items, likes


def folded(items, likes, z, variance, steps=100, tolerance=1e-6):
    """(E u, var u), both (users, K)."""
    width = half_row_width(FACTORS)
    users = np.empty((len(likes), 2 * width), dtype=np.float32)
    indptr = np.concatenate([[0], np.cumsum(likes.sum(axis=1))])
    indices = np.nonzero(likes)[1].astype(np.int32)
    z, limits = tuple(map(np.float32, z)), (steps, tolerance)
    table = transpose_table(items, FACTORS)
    fold_in(indptr, indices, table, FACTORS, z, 1 / variance, limits, partition_evenly(len(likes), 3), users)
    return users[:, :FACTORS], users[:, width : width + FACTORS]


def by_turns(items, likes, z, variance, updates):
    """Jaakkola's updates of one user: xi, then the best q(u) for it, float64."""
    width = half_row_width(FACTORS)
    v, spread = items[:, :FACTORS].astype(np.float64), items[:, width : width + FACTORS].astype(np.float64)
    mean, own = np.zeros(FACTORS), np.full(FACTORS, variance)
    for _ in range(updates):
        xi = np.sqrt((v @ mean + z[0]) ** 2 + (v**2 + spread) @ own + spread @ mean**2 + z[1])
        pull = np.tanh(xi / 2) / (2 * xi)
        P = v.T @ (pull[:, None] * v) + np.diag(pull @ spread) + np.eye(FACTORS) / variance
        mean, own = np.linalg.solve(P, (likes - 0.5 - pull * z[0]) @ v), 1 / np.diag(P)
    return mean, own


@pytest.mark.slow
@pytest.mark.parametrize("scale, z, variance", [(0.3, (-5, 1e-6), 0.2), (0.5, (-3, 0.1), 1), (3.0, (-8, 0), 100)])
def test_the_maximum_is_that_of_updates_by_turns(scale, z, variance):
    """The last of them has logits of tens: from zero, Newton's first step is too long by far."""
    items, likes = problem(scale)
    means, variances = folded(items, likes, z, variance)
    for user, row in enumerate(likes):
        mean, own = by_turns(items, row, z, variance, 3000)
        np.testing.assert_allclose(means[user], mean, rtol=2e-3, atol=2e-3 * np.abs(mean).max())
        np.testing.assert_allclose(variances[user], own, rtol=2e-3)


def test_a_few_steps_come_closer_than_many_updates_by_turns():
    items, likes = problem(0.3)
    best, _ = folded(items, likes, (-5, 1e-6), 0.2)
    few, _ = folded(items, likes, (-5, 1e-6), 0.2, steps=5)
    for user in range(1, len(likes)):
        turned, _ = by_turns(items, likes[user], (-5, 1e-6), 0.2, 12)
        assert np.abs(few[user] - best[user]).max() < 0.2 * np.abs(turned - best[user]).max()


def test_a_user_alone_has_the_bits_of_a_block():
    items, likes = problem(0.3)
    together = np.hstack(folded(items, likes, (-5, 1e-6), 0.2))
    for user in range(len(likes)):
        alone = np.hstack(folded(items, likes[[user]], (-5, 1e-6), 0.2))
        np.testing.assert_array_equal(alone[0], together[user])
