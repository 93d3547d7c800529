"""Edges turned round and grouped, against SciPy and against lists."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.numerics.adjacency import copy_pattern, group_by_vertex, transpose


def random_graph(users, items, density, seed=0):
    rng = np.random.default_rng(seed)
    return csr_matrix(rng.random((users, items)) < rng.uniform(0, 2 * density, users)[:, None])


@pytest.mark.parametrize("users, items", [(200, 40), (3, 50), (40, 1)])
def test_transposed_agrees_with_scipy(users, items):
    matrix = random_graph(users, items, 0.2)
    starts, indices = copy_pattern(matrix)
    assert starts.dtype == np.int64 and indices.dtype == np.int32
    by_item = transpose(starts, indices, items)
    expected = csr_matrix(matrix.T)
    expected.sort_indices()
    np.testing.assert_array_equal(by_item[0], expected.indptr)
    np.testing.assert_array_equal(by_item[1], expected.indices)
    assert by_item[0].dtype == np.int64 and by_item[1].dtype == np.int32


def test_a_graph_without_edges_has_empty_lists():
    starts, neighbours = transpose(np.zeros(5, dtype=np.int64), np.empty(0, dtype=np.int32), 3)
    assert starts.tolist() == [0, 0, 0, 0] and len(neighbours) == 0


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_grouped_is_a_stable_sort(dtype):
    vertices = np.random.default_rng(2).integers(0, 20, 500).astype(dtype)
    vertices = vertices[vertices != 7]  # a vertex without entries
    starts, order = group_by_vertex(vertices, 22)
    np.testing.assert_array_equal(order, np.argsort(vertices, kind="stable"))
    np.testing.assert_array_equal(np.diff(starts), np.bincount(vertices, minlength=22))
    assert starts.dtype == np.int64 and order.dtype == np.int32
