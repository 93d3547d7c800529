"""Edges grouped by their vertices, against a stable sort."""

import numpy as np
import pytest

from oneclass.models.numerics.adjacency import group_by_vertex


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_grouped_is_a_stable_sort(dtype):
    vertices = np.random.default_rng(2).integers(0, 20, 500).astype(dtype)
    vertices = vertices[vertices != 7]  # a vertex without entries
    starts, order = group_by_vertex(vertices, 22)
    np.testing.assert_array_equal(order, np.argsort(vertices, kind="stable"))
    np.testing.assert_array_equal(np.diff(starts), np.bincount(vertices, minlength=22))
    assert starts.dtype == np.int64 and order.dtype == np.int32
