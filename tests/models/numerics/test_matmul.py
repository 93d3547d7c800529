"""Sums of table rows against NumPy and against plain loops, across the edges of the kernels' passes and tiles."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.numerics import matmul
from oneclass.models.numerics.matmul import (
    COLUMNS,
    GROUP,
    TILE,
    dense_times,
    gram_times_vector,
    pattern_times,
    sparse_table,
    sparse_times,
    tall_times,
)
from oneclass.models.numerics.threads import kernel_threads

SHAPES = [(1, 1), (GROUP + 1, COLUMNS + 3), (2 * GROUP, 7), (9, 2 * TILE), (5, TILE + 1), (20, 1)]


@pytest.fixture(params=[0, 1 << 30], ids=["tiled", "in_place"], autouse=True)
def kernel(request, monkeypatch):
    monkeypatch.setattr(matmul, "MIN_REUSE", request.param)


@pytest.mark.parametrize("block, columns", SHAPES)
def test_products_agree_with_numpy(block, columns):
    rng = np.random.default_rng(1)
    histories = csr_matrix(3 * (rng.random((block, 50)) < 0.2))
    rows, table = (rng.normal(size=shape).astype(np.float32) for shape in ((block, 50), (50, columns)))
    np.testing.assert_allclose(pattern_times(histories, table), (histories.toarray() > 0) @ table, atol=1e-5)
    np.testing.assert_allclose(dense_times(rows, table), rows @ table, atol=1e-5)
    np.testing.assert_array_equal(tall_times(csr_matrix(rows), table), dense_times(rows, table))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("block, columns", SHAPES)
def test_a_pattern_product_is_the_sum_in_the_order_of_the_history_to_the_bit(block, columns, threads):
    rng = np.random.default_rng(2)
    lengths = rng.permutation(np.arange(block) % 19)  # at least one row is empty
    indices = np.concatenate([rng.permutation(50)[:length] for length in lengths]).astype(np.int32)
    histories = csr_matrix((np.ones(len(indices)), indices, np.append(0, np.cumsum(lengths))), shape=(block, 50))
    table = rng.normal(size=(50, columns)).astype(np.float32)
    expected = np.zeros((block, columns), dtype=np.float32)
    for row in range(block):
        for item in indices[histories.indptr[row] : histories.indptr[row + 1]]:
            expected[row] += table[item]
    with kernel_threads(threads):
        np.testing.assert_array_equal(pattern_times(histories, table), expected)
        np.testing.assert_array_equal(sparse_times(histories, csr_matrix(table)), expected)
        for size in (1, 4):
            parts = [pattern_times(histories[start : start + size], table) for start in range(0, block, size)]
            np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_a_dense_product_has_the_same_bits_from_either_kernel_and_in_any_block(monkeypatch):
    rng = np.random.default_rng(3)
    rows, table = (rng.normal(size=shape).astype(np.float32) for shape in ((7, 50), (50, 4 * COLUMNS + 3)))
    expected = dense_times(rows, table)
    for reuse in (0, 1 << 30):
        monkeypatch.setattr(matmul, "MIN_REUSE", reuse)
        one_by_one = [dense_times(rows[row : row + 1], table) for row in range(len(rows))]
        np.testing.assert_array_equal(np.concatenate(one_by_one), expected)


@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
def test_a_vector_goes_through_a_sparse_table_with_the_bits_of_a_block(share):
    rng = np.random.default_rng(4)
    dense = np.where(rng.random((60, 45)) < 0.3, rng.normal(size=(60, 45)), 0).astype(np.float32)
    dense[7], dense[:, 3] = 0, 0
    table, turned = csr_matrix(dense), csr_matrix(dense.T)
    block = np.where(rng.random((60, 5)) < share, rng.normal(size=(60, 5)), 0).astype(np.float32)
    expected = tall_times(turned, block)
    np.testing.assert_allclose(expected, dense.T @ block, atol=1e-5)
    for column in range(5):
        vector, both = block[:, column], (sparse_table(turned), sparse_table(table))
        np.testing.assert_array_equal(gram_times_vector(*both, vector), tall_times(table, expected)[:, column])
