"""Sums of table rows against NumPy, across the edges of the kernel's passes."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from models.products import COLUMNS, GROUP, dense_times, pattern_times


@pytest.mark.parametrize("block, columns", [(1, 1), (GROUP + 1, COLUMNS + 3), (2 * GROUP, 7)])
def test_products_agree_with_numpy(block, columns):
    rng = np.random.default_rng(1)
    histories = csr_matrix(3 * (rng.random((block, 50)) < 0.2))
    rows, table = (rng.normal(size=shape).astype(np.float32) for shape in ((block, 50), (50, columns)))
    np.testing.assert_allclose(pattern_times(histories, table), (histories.toarray() > 0) @ table, atol=1e-5)
    np.testing.assert_allclose(dense_times(rows, table), rows @ table, atol=1e-5)
