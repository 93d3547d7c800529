"""Small positive definite systems against numpy.linalg."""

import numpy as np
import pytest

from oneclass.models.numerics.cholesky import factorize, inverse_last_columns, solve


def positive_definite(size):
    factor = np.random.default_rng(size).normal(size=(size, size + 3))
    return factor @ factor.T / size + np.eye(size)


@pytest.mark.parametrize("size", [1, 2, 5, 20, 33])
def test_a_system_is_solved_from_its_lower_triangle(size):
    whole, right = positive_definite(size), np.random.default_rng(1).normal(size=size)
    rows = np.full((size, size + 4), 99.0)  # a kernel's rows are padded
    rows[:, :size] = np.where(np.tri(size, dtype=bool), whole, 99.0)
    solution = right.copy()
    solve(rows, solution)
    np.testing.assert_allclose(solution, np.linalg.solve(whole, right), rtol=1e-10)


@pytest.mark.parametrize("size", [1, 3, 4, 5, 8, 11, 42])
def test_the_upper_factor_is_that_of_cholesky(size):
    whole = positive_definite(size)
    matrix = np.where(np.tri(size, dtype=bool).T, whole, 99).astype(np.float32)
    assert factorize(matrix)
    np.testing.assert_allclose(np.triu(matrix), np.linalg.cholesky(whole).T, atol=2e-5)


@pytest.mark.parametrize("at", [0, 2, 5, 9])
def test_an_indefinite_matrix_is_noticed(at):
    matrix = np.eye(10, dtype=np.float32)
    matrix[at, at] = -1
    assert not factorize(matrix)


@pytest.mark.parametrize("size, columns", [(1, 1), (6, 1), (9, 4), (42, 7), (42, 42)])
def test_the_last_columns_are_those_of_the_inverse(size, columns):
    whole = positive_definite(size)
    upper, inverse = np.linalg.cholesky(whole).T.astype(np.float32), np.empty((columns, size), dtype=np.float32)
    inverse_last_columns(np.ascontiguousarray(upper), inverse)
    np.testing.assert_allclose(inverse, np.linalg.inv(whole)[size - columns :], atol=2e-5)
