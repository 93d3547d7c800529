"""The Gram matrix of the dense Markov random field by blocks of users: against float64 numpy, and against one machine."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import FitOptions
from oneclass.models.mrf import dense_blocks
from oneclass.models.mrf.dense import MRFDense, MRFDenseSettings
from oneclass.models.numerics.column_scaling import column_moments
from oneclass.models.numerics.gram import gram_stripe
from tests.models.block_fits import assert_close, assert_same_bits


def fitted(matrix, *, threads=1, options=None, **settings):
    return MRFDense(MRFDenseSettings(**settings), threads=threads).fit(matrix, options or FitOptions())


@pytest.fixture
def odd(long_tailed):
    """A user and an item without an edge."""
    likes = long_tailed.toarray()
    likes[7], likes[:, 11] = 0, 0
    return csr_matrix(likes)


@pytest.mark.parametrize(("first", "end"), [(0, 120), (0, 1), (40, 77), (119, 120)])
def test_a_stripe_is_that_of_the_dense_product(odd, first, end):
    likes, weights = odd.toarray().astype(float), column_moments(odd, 0.5).weights
    right = np.tril((likes * weights[:, None]).T @ likes)[first:end, :end]
    one, two = (gram_stripe(odd, weights, first, end, threads) for threads in (1, 2))
    assert one.dtype == np.float64
    np.testing.assert_allclose(one, right, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(one, two)


def test_fewer_users_than_items_are_inverted_over_the_items(odd):
    few = odd[20:80]
    assert_close(fitted(few), fitted(few, blocks=3), 1e-5)


def test_the_height_of_a_stripe_changes_no_bit(odd, monkeypatch):
    one = fitted(odd, blocks=3)
    monkeypatch.setattr(dense_blocks, "STRIPE_BYTES", 8 * 120 * 3 * 50)
    assert dense_blocks.partition_stripes(120, 3) == [(0, 50), (50, 100), (100, 120)]
    assert_same_bits(one, fitted(odd, blocks=3))
