"""Small positive definite systems in vector lanes against numpy.linalg."""

import numpy as np
import pytest

from oneclass.models.numerics.cholesky import factorize_tiled, solve_factorized, solve_in_rows, solve_with_pivot_floor
from oneclass.models.numerics.simd import F32_WIDTH, F64_WIDTH, aligned_zeros, pad_width

SIZES = [1, 2, 7, 8, 9, 20, 21, 40]
COMPILED = [1, 7, 8, 21]  # a kernel each


def positive_definite(size, ridge=1.0):
    factor = np.random.default_rng(size).normal(size=(size, size + 3))
    return factor @ factor.T / size + ridge * np.eye(size), np.random.default_rng(size + 1).normal(size=size)


def laid_out(matrix, width, dtype=np.float32):
    """Flat rows, `width` long, and room for the lanes that reach behind the last."""
    rows = np.zeros((len(matrix), width), dtype=dtype)
    rows[:, : matrix.shape[1]] = matrix
    return np.append(rows, np.zeros(F32_WIDTH, dtype=dtype))


@pytest.mark.parametrize("size", SIZES)
def test_a_system_in_rows_is_solved_from_its_lower_triangle(size):
    whole, right = positive_definite(size)
    stride = int(pad_width(size + 2))
    vector = right.astype(np.float32)
    solve_in_rows(laid_out(np.where(np.tri(size, dtype=bool), whole, 9.0), stride), stride, size, vector)
    np.testing.assert_allclose(vector, np.linalg.solve(whole, right), atol=3e-5)


@pytest.mark.parametrize("size", [16, 32, 64])
def test_the_tiled_factor_is_that_of_cholesky_and_solves(size):
    whole, right = positive_definite(size)
    matrix = laid_out(-whole, size)
    assert factorize_tiled(matrix, size)
    upper = np.triu(matrix[: size * size].reshape(size, size))
    np.testing.assert_allclose(upper, np.linalg.cholesky(whole).T, atol=3e-5)
    vector, half = aligned_zeros(size), aligned_zeros(size)
    vector[:] = right
    solve_factorized(matrix, size, vector, half)
    np.testing.assert_allclose(vector, np.linalg.solve(whole, right), atol=3e-5)
    np.testing.assert_allclose(half, np.linalg.solve(np.linalg.cholesky(whole), right), atol=3e-5)


@pytest.mark.parametrize("at", [0, 5, 17, 31])
def test_a_tiled_matrix_that_is_not_definite_is_noticed(at):
    matrix = np.eye(32)
    matrix[at, at] = -1
    assert not factorize_tiled(laid_out(-matrix, 32), 32)


@pytest.mark.parametrize("size", COMPILED)
def test_a_system_of_doubles_is_solved_from_its_upper_triangle(size):
    whole, right = positive_definite(size)
    n = size + 1
    system = laid_out(np.column_stack([np.triu(whole), right]), int(pad_width(n, F64_WIDTH)), np.float64)
    solution = np.empty(n)
    solve_with_pivot_floor((0,) * n, system, 1e-9, solution)
    np.testing.assert_allclose(solution[:size], np.linalg.solve(whole, right), rtol=1e-9)


def test_a_pivot_below_the_least_eigenvalue_is_lifted_to_it():
    system = laid_out(np.array([[4.0, 2.0, 8.0], [0.0, 1.0 - 1e-12, 5.0]]), F64_WIDTH, np.float64)
    solution = np.empty(3)
    solve_with_pivot_floor((0,) * 3, system, 0.5, solution)  # the second pivot is -1e-12
    np.testing.assert_allclose(solution[:2], [1.0, 2.0])
