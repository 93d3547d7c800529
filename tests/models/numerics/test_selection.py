"""The largest of an array against a sort."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.numerics.selection import largest


@settings(max_examples=50, deadline=None)  # the first example compiles
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.data())
def test_it_is_the_value_at_its_rank(values, data):
    values = np.array(values, dtype=np.float32)
    rank = data.draw(st.integers(1, len(values)))
    assert largest(values.copy(), rank) == np.sort(values)[::-1][rank - 1]


def test_nothing_is_lost_and_the_front_holds_the_largest():
    values = np.random.default_rng(1).random(1_000).astype(np.float32)
    front = values.copy()
    assert largest(front, 100) == front[:100].min() == np.sort(values)[900]
    np.testing.assert_array_equal(np.sort(front), np.sort(values))
