"""Small positive definite systems, and the tiled inverse, against numpy.linalg."""

import numpy as np
import pytest

from oneclass.models.mrf.sparse_kernels import factorize, invert_last_columns
from oneclass.models.numerics.gram_inverse import invert_lower
from oneclass.models.numerics.logistic_bound import solve_in_rows
from oneclass.models.numerics.simd import F32_WIDTH, pad_width


def positive_definite(size):
    factor = np.random.default_rng(size).normal(size=(size, size + 3))
    return factor @ factor.T / size + np.eye(size)


@pytest.mark.parametrize("size, columns", [(1, 1), (6, 1), (9, 4), (42, 7), (42, 42), (80, 33)])
def test_the_last_columns_are_those_of_the_inverse(size, columns):
    whole, width = positive_definite(size), int(pad_width(size))
    padded = np.eye(width)
    padded[:size, :size] = whole
    matrix, work = laid_out(-padded, width), np.full(width * pad_width(columns), np.nan, dtype=np.float32)
    inverse = np.empty((columns, size), dtype=np.float32)
    assert factorize(matrix, width)
    invert_last_columns(matrix, width, work, inverse)
    np.testing.assert_allclose(inverse, np.linalg.inv(whole)[size - columns :], atol=2e-5)


@pytest.mark.parametrize("size, tile", [(1, 4), (4, 4), (5, 4), (37, 8), (120, 16), (120, 500)])
def test_the_lower_triangle_becomes_that_of_the_inverse(size, tile):
    whole = positive_definite(size)
    matrix = np.where(np.tri(size, dtype=bool), whole, 99).astype(np.float32)
    invert_lower(matrix, tile=tile)
    np.testing.assert_allclose(np.tril(matrix), np.tril(np.linalg.inv(whole)), atol=2e-5)


@pytest.mark.parametrize("at", [2, 9])
def test_an_indefinite_matrix_is_refused(at):
    matrix = np.eye(12, dtype=np.float32)
    matrix[at, at] = -1
    with pytest.raises(ValueError, match="raise l2"):
        invert_lower(matrix, tile=4)


def laid_out(matrix, width, dtype=np.float32):
    """Flat rows, `width` long, and room for the lanes that reach behind the last."""
    rows = np.zeros((len(matrix), width), dtype=dtype)
    rows[:, : matrix.shape[1]] = matrix
    return np.append(rows, np.zeros(F32_WIDTH, dtype=dtype))


@pytest.mark.parametrize("at", [0, 5, 17, 31])
def test_a_matrix_that_is_not_definite_is_noticed(at):
    matrix = np.eye(32)
    matrix[at, at] = -1
    assert not factorize(laid_out(-matrix, 32), 32)


def test_a_pivot_of_float32_below_the_least_eigenvalue_is_lifted_to_it():
    matrix, vector = laid_out(np.array([[1.0 - 1e-12, 0.0], [2.0, 4.0]]), 16), np.array([5.0, 8.0], dtype=np.float32)
    solve_in_rows(matrix, 16, 2, vector, np.float32(0.5))  # the pivot of the first row is 0 in float32
    np.testing.assert_allclose(vector, [2.0, 1.0], rtol=1e-6)
