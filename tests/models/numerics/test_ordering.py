"""Search and order in kernels against numpy's."""

import numpy as np
import pytest

from oneclass.models.numerics.top_k import ascending_order, contains, first_above


@pytest.mark.parametrize("count", [0, 1, 2, 3, 16, 100])
def test_the_first_place_above_is_that_of_searchsorted(count):
    ascending = np.sort(np.random.default_rng(count).integers(0, 40, count))
    for value in range(-1, 42):
        assert first_above(ascending, value) == np.searchsorted(ascending, value, side="right")
        assert contains(ascending, value) == (value in ascending)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8, 100, 129])
@pytest.mark.parametrize("ties", [False, True])
def test_the_order_is_that_of_a_stable_sort(count, ties):
    rng = np.random.default_rng(count)
    keys = rng.integers(0, 7, count).astype(np.float32) if ties else rng.normal(size=count).astype(np.float32)
    np.testing.assert_array_equal(ascending_order(keys), np.argsort(keys, kind="stable"))
