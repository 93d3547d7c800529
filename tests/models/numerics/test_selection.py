"""The largest and the smallest of an array against a sort."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from oneclass.models.numerics.top_k import move_smallest_first, select_largest, select_smallest

VALUES = st.lists(st.integers(-5, 5), min_size=1, max_size=40)


@settings(max_examples=50, deadline=None)  # the first example compiles
@given(VALUES, st.data())
def test_it_is_the_value_at_its_rank(values, data):
    values = np.array(values, dtype=np.float32)
    rank = data.draw(st.integers(1, len(values)))
    assert select_largest(values.copy(), rank) == np.sort(values)[::-1][rank - 1]


def test_nothing_is_lost_and_the_front_holds_the_largest():
    values = np.random.default_rng(1).random(1_000).astype(np.float32)
    front = values.copy()
    assert select_largest(front, 100) == front[:100].min() == np.sort(values)[900]
    np.testing.assert_array_equal(np.sort(front), np.sort(values))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0, np.inf]), min_size=1, max_size=40), st.data())
def test_the_smallest_are_those_of_a_stable_sort_by_position(keys, data):
    keys = np.array(keys)
    count = data.draw(st.integers(0, len(keys)))
    before = keys.copy()
    positions = select_smallest(keys, count)
    np.testing.assert_array_equal(positions, np.sort(np.argsort(keys, kind="stable")[:count]))
    np.testing.assert_array_equal(keys, before)
    assert positions.dtype == np.int64


@settings(max_examples=50, deadline=None)
@given(VALUES, st.integers(0, 5), st.data())
def test_the_smallest_move_to_the_front_with_what_stands_beside_them(values, behind, data):
    keys = np.array(values + [-9.0] * behind)  # what lies behind the count stays out of it
    order = np.arange(len(keys), dtype=np.int32)
    wanted = data.draw(st.integers(1, len(values)))
    found = keys.copy()
    move_smallest_first(found, order, len(values), wanted)
    np.testing.assert_array_equal(np.sort(found[:wanted]), np.sort(values)[:wanted])
    np.testing.assert_array_equal(keys[order], found)
    np.testing.assert_array_equal(np.sort(order), np.arange(len(keys)))
    np.testing.assert_array_equal(order[len(values) :], np.arange(len(values), len(keys)))
