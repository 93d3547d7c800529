"""The tiled in-place inverse against a float64 one."""

import numpy as np
import pytest

from oneclass.models.numerics.spd_inverse import invert_lower


def positive_definite(size):
    factor = np.random.default_rng(size).normal(size=(size, size + 5))
    return factor @ factor.T / size + np.eye(size)


@pytest.mark.parametrize("size, tile", [(1, 4), (4, 4), (5, 4), (37, 8), (120, 16), (120, 500)])
def test_the_lower_triangle_becomes_that_of_the_inverse(size, tile):
    whole = positive_definite(size)
    matrix = np.where(np.tri(size, dtype=bool), whole, 99).astype(np.float32)
    invert_lower(matrix, threads=2, tile=tile)
    np.testing.assert_allclose(np.tril(matrix), np.tril(np.linalg.inv(whole)), atol=2e-5)


def test_threads_do_not_change_a_bit():
    one, two = (positive_definite(150).astype(np.float32) for _ in range(2))
    invert_lower(one, threads=1, tile=32)
    invert_lower(two, threads=2, tile=32)
    np.testing.assert_array_equal(np.tril(one), np.tril(two))


@pytest.mark.parametrize("at", [2, 9])
def test_an_indefinite_matrix_is_refused(at):
    matrix = np.eye(12, dtype=np.float32)
    matrix[at, at] = -1
    with pytest.raises(ValueError, match="raise l2"):
        invert_lower(matrix, threads=1, tile=4)
