"""Selection, search and order against sorts and NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass.models.numerics.adjacency import contains, find_largest, first_above, nth_smallest
from oneclass.models.numerics.constrained_top_k import Constraints, select_top_items
from oneclass.models.numerics.top_k import find_top_contributions


@settings(max_examples=50, deadline=None)  # the first example compiles
@given(st.lists(st.sampled_from([-np.inf, 0.0, 0.5, 2.0]) | st.floats(0, 1, width=32), max_size=40), st.data())
def test_the_largest_are_those_of_a_stable_sort_by_place(values, data):
    values = np.array(values, dtype=np.float64)
    count = data.draw(st.integers(0, len(values)))
    before = values.copy()
    places = find_largest(values, count)
    np.testing.assert_array_equal(places, np.sort(np.argsort(-values, kind="stable")[:count]))
    np.testing.assert_array_equal(values, before)
    assert places.dtype == np.int64
    assert [nth_smallest(values, n) for n in range(len(values))] == sorted(values)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 16, 100])
def test_the_first_place_above_is_that_of_searchsorted(count):
    ascending = np.sort(np.random.default_rng(count).integers(0, 40, count))
    for value in range(-1, 42):
        assert first_above(ascending, value) == np.searchsorted(ascending, value, side="right")
        assert contains(ascending, value) == (value in ascending)


ADDED = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0, 3.0, np.nan, np.inf]), max_size=12)


@settings(max_examples=50, deadline=None)  # the first example compiles
@given(st.lists(ADDED, min_size=1, max_size=4), st.integers(1, 4))
def test_what_added_most_is_named_and_the_upper_of_equals_comes_first(columns, count):
    rows = min(map(len, columns))
    added = np.array([column[:rows] for column in columns], dtype=np.float32).T.reshape(rows, len(columns))
    history = csr_matrix((np.ones(rows), (np.zeros(rows, dtype=int), np.arange(rows) + 100)), shape=(1, 200))
    (found,) = find_top_contributions(history, np.zeros((1, len(columns)), np.int32), lambda *_: added, count)
    for of_column, column in zip(found, added.T, strict=True):
        above = [row for row in range(rows) if column[row] > 0]
        best = sorted(above, key=lambda row: -column[row])[:count]
        assert of_column.tolist() == [row + 100 for row in best] + [-1] * (count - len(best))


ITEMS, USERS, N = 2000, 30, 12


def select_naively(scores, excluded, constraints, set_):
    allowed = [item for item in np.flatnonzero(constraints.eligible[set_]) if item not in excluded]
    ordered = sorted((scores[item] for item in allowed), reverse=True)[:N]
    spread = ordered[0] - ordered[-1] if ordered else np.float32(0)
    boosted = {item: scores[item] + constraints.boosts[set_, item] * spread for item in allowed}
    counts = np.zeros(len(constraints.limits), dtype=int)
    chosen = []
    for item in [*constraints.pinned, *sorted(allowed, key=lambda item: (-boosted[item], item))]:
        start, stop = constraints.category_indptr[item : item + 2]
        categories = constraints.category_indices[start:stop]
        is_free = (counts[categories] < constraints.limits[categories]).all()
        if len(chosen) < N and item in boosted and item not in chosen and is_free:
            chosen.append(item)
            counts[categories] += 1
    return chosen, [boosted[item] for item in chosen]


@pytest.mark.parametrize(("limit", "boost"), [(2, 0.5), (50, 0.05), (50, 3), (9, -1)])
def test_lists_are_those_of_a_walk_down_the_ranking(limit, boost):
    generator = np.random.default_rng(0)
    categories = [np.flatnonzero(generator.random(6) < [0.9, 0.2, 0.2, 0.1, 0.05, 0.01]) for _ in range(ITEMS)]
    constraints = Constraints(
        generator.random((2, ITEMS)) < [[0.9], [0.05]],
        (generator.random((2, ITEMS)) < 0.2) * np.float32(boost),
        np.array([7, 1500, 3], dtype=np.int32),
        np.cumsum([0, *map(len, categories)]),
        np.concatenate(categories).astype(np.int32),
        np.array([limit, 3, 3, 3, 4, 4], dtype=np.int32),
    )
    scores = np.round(generator.standard_normal((USERS, ITEMS)), 2).astype(np.float32)
    excluded = [np.sort(generator.choice(ITEMS, 400, replace=False)) for _ in range(USERS)]
    sets = generator.integers(0, 2, USERS)
    indptr = np.cumsum([0, *map(len, excluded)])
    ids, best = select_top_items(scores, indptr, np.concatenate(excluded), sets, constraints, N)
    for user in range(USERS):
        chosen, values = select_naively(scores[user], set(excluded[user]), constraints, sets[user])
        assert ids[user, : len(chosen)].tolist() == chosen and (ids[user, len(chosen) :] == -1).all()
        assert best[user, : len(chosen)].tolist() == values
