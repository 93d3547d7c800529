"""The Gram matrix of the dense Markov random field by blocks of users: against float64 numpy, and against one machine."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix, vstack

from models.fitting import FitOptions
from models.mrf import dense_blocks
from models.mrf.dense import MRFDense, MRFDenseSettings
from models.numerics.gram import gram_stripe
from models.numerics.rescaled_columns import columns
from tests.models.block_fits import Backwards, Scales, assert_close, assert_same_bits, shelved

MODES = [
    {},
    {"l2": 2.0, "centred": True, "alpha": 0.75, "user_weight_exponent": 1.0},
    {"intercept": True, "popularity_discount": 0.5},
]
modes = pytest.mark.parametrize("mode", MODES, ids=["defaults", "centred", "intercept"])
ALIKE = {"l2": 2.0, "user_weight_exponent": 0.0, "centred": True}


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
    likes, weights = odd.toarray().astype(float), columns(odd, 0.5).weights
    right = np.tril((likes * weights[:, None]).T @ likes)[first:end, :end]
    one, two = (gram_stripe(odd, weights, first, end, threads) for threads in (1, 2))
    assert one.dtype == np.float64
    np.testing.assert_allclose(one, right, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("count", [3, 4, 7])
@pytest.mark.parametrize("mode", [*MODES, ALIKE], ids=["defaults", "centred", "intercept", "users alike"])
def test_blocks_have_the_bits_of_one_machine(odd, mode, count):
    assert_same_bits(fitted(odd, **mode), fitted(odd, blocks=count, **mode))


def test_fewer_users_than_items_are_inverted_over_the_items(odd):
    few = odd[20:80]
    assert_close(fitted(few), fitted(few, blocks=3), 1e-5)


@modes
def test_the_bits_depend_on_the_number_of_blocks_alone(odd, mode):
    one = fitted(odd, blocks=5, **mode)
    assert_same_bits(one, fitted(odd, blocks=5, threads=2, **mode))
    assert_same_bits(one, fitted(odd, blocks=5, options=FitOptions(workers=Backwards()), **mode))


def test_the_height_of_a_stripe_changes_no_bit(odd, monkeypatch):
    one = fitted(odd, blocks=3)
    monkeypatch.setattr(dense_blocks, "AT_ONCE", 8 * 120 * 3 * 50)
    assert dense_blocks.stripes(120, 3) == [(0, 50), (50, 100), (100, 120)]
    assert_same_bits(one, fitted(odd, blocks=3))


@pytest.mark.parametrize("copies", [1, 6])
def test_items_alone_travel_however_many_users_there_are(long_tailed, tmp_path, copies):
    matrix, scales = csr_matrix(vstack([long_tailed] * copies)), Scales()
    model = fitted(matrix, blocks=3, options=FitOptions(workers=scales, rows=shelved(matrix, tmp_path)))
    assert len(scales.taken) == 3 and max(scales.taken) <= 1500
    assert max(scales.given) <= 8 * 120 * 120 + 500
    assert_same_bits(model, fitted(matrix, blocks=3))


@pytest.mark.parametrize("likes", [np.ones((6, 5)), np.eye(1), np.eye(4)[:3], np.ones((4, 1))])
def test_awkward_data_get_finite_scores(likes):
    matrix = csr_matrix(likes.astype(np.float32))
    assert np.isfinite(fitted(matrix, blocks=9).scores(matrix)).all()
