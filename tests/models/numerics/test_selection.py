"""Selection, search, order and re-ranking against sorts, loops and their definitions in NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse import random as random_matrix

from oneclass.models.numerics.adjacency import contains, find_largest, first_above, nth_smallest
from oneclass.models.numerics.constrained_top_k import Constraints, select_top_items
from oneclass.models.numerics.top_k import find_top_contributions
from oneclass.models.reranking import project_items, rerank, select_diverse_items, unit_rows


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


USERS, N = 30, 12


def draw_arguments(seed, *, items=2000, eligible=(0.9, 0.05), limit=9, boost=0.5):
    """The arguments of `select_top_items` with two sets of users, pins, limits and excluded items."""
    generator = np.random.default_rng(seed)
    categories = [np.flatnonzero(generator.random(6) < [0.9, 0.2, 0.2, 0.1, 0.05, 0.01]) for _ in range(items)]
    excluded = [np.sort(generator.choice(items, items // 5, replace=False)) for _ in range(USERS)]
    constraints = Constraints(
        generator.random((2, items)) < np.array(eligible)[:, None],
        None if boost is None else (generator.random((2, items)) < 0.2) * np.float32(boost),
        generator.permutation(items)[:3].astype(np.int32),
        np.cumsum([0, *map(len, categories)]),
        np.concatenate(categories).astype(np.int32),
        np.array([limit, 3, 3, 3, 4, 4], dtype=np.int32),
    )
    scores = np.round(generator.standard_normal((USERS, items)), 2).astype(np.float32)
    indptr = np.cumsum([0, *map(len, excluded)])
    return scores, indptr, np.concatenate(excluded), generator.integers(0, 2, USERS), constraints


def select_naively(scores, excluded, constraints, set_):
    allowed = [item for item in np.flatnonzero(constraints.eligible[set_]) if item not in excluded]
    ordered = sorted((scores[item] for item in allowed), reverse=True)[:N]
    spread = ordered[0] - ordered[-1] if ordered else np.float32(0)
    boosts = np.zeros((2, len(scores)), np.float32) if constraints.boosts is None else constraints.boosts
    boosted = {item: scores[item] + boosts[set_, item] * spread for item in allowed}
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


@pytest.mark.parametrize(("limit", "boost"), [(2, 0.5), (50, 0.05), (50, 3), (9, -1), (3, None)])
def test_lists_are_those_of_a_walk_down_the_ranking(limit, boost):
    """Those that are made with variety too, if variety has no strength."""
    scores, indptr, excluded, sets, constraints = arguments = draw_arguments(0, limit=limit, boost=boost)
    ids, best = select_top_items(*arguments, N)
    for user in range(USERS):
        own = set(excluded[indptr[user] : indptr[user + 1]])
        chosen, values = select_naively(scores[user], own, constraints, sets[user])
        assert ids[user, : len(chosen)].tolist() == chosen and (ids[user, len(chosen) :] == -1).all()
        assert best[user, : len(chosen)].tolist() == values
    plain = select_diverse_items(*arguments, N, vectors=draw_vectors(scores.shape[1]), strength=0)
    assert (plain[0] == ids).all() and (plain[1] == best).all()


def draw_vectors(items):
    return unit_rows(np.random.default_rng(7).normal(size=(items, 20)) + 0.7)


def test_constraints_hold_lists_are_full_and_similarity_falls():
    def measure(ids):
        return np.mean([np.triu(vectors[row[row >= 0]] @ vectors[row[row >= 0]].T, 1).sum() for row in ids])

    vectors = draw_vectors(120)
    for seed in range(10):
        _, indptr, excluded, sets, constraints = arguments = draw_arguments(seed, items=120, eligible=(0.8, 0.8))
        plain, _ = select_top_items(*arguments, 8)
        ids, best = select_diverse_items(*arguments, 8, vectors=vectors, strength=0.8)
        assert measure(ids) < measure(plain)
        for user, row in enumerate(ids):
            listed = row[row >= 0]
            assert len(listed) == len(set(listed)) == (plain[user] >= 0).sum()
            assert constraints.eligible[sets[user], listed].all()
            assert not np.isin(listed, excluded[indptr[user] : indptr[user + 1]]).any()
            counts = np.zeros(6)
            for item in listed:
                start, stop = constraints.category_indptr[item : item + 2]
                counts[constraints.category_indices[start:stop]] += 1
            assert (counts <= constraints.limits).all()
            is_pinned = np.isin(listed, constraints.pinned)
            assert listed[is_pinned].tolist() == [item for item in plain[user] if item in constraints.pinned]
            assert (np.diff(best[user][: len(listed)][~is_pinned]) <= 0).all() and is_pinned[: is_pinned.sum()].all()


def draw_candidates(seed, users=6, candidates=25, width=40, items=60):
    """Candidates with scores, best first, and vectors."""
    random = np.random.default_rng(seed)
    vectors = unit_rows(random.normal(size=(items, width)) + 0.5)
    ids = np.stack([random.permutation(items)[:candidates] for _ in range(users)]).astype(np.int32)
    return ids, -np.sort(-random.normal(size=ids.shape), axis=1).astype(np.float32), vectors


def cosine_similarities(vectors, ids):
    table = (1 + vectors[ids].astype(np.float64) @ vectors[ids].astype(np.float64).T) / 2
    np.fill_diagonal(table, 1)
    return table


def pick_max_sum(relevance, table, n, strength):
    """Max-sum diversification by its definition; the products of the vectors are 2 s - 1."""
    picked, left = [], list(range(len(relevance)))
    while left and len(picked) < n:
        sums = [sum(2 * table[i, j] - 1 for j in picked) for i in left]
        values = [
            (1 - strength) * relevance[i] - 2 * strength * total / max(n - 1, 1)
            for i, total in zip(left, sums, strict=True)
        ]
        picked.append(left.pop(int(np.argmax(values))))
    return picked


@pytest.mark.parametrize("strength", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_lists_are_those_of_the_definition(strength):
    for seed in range(4):
        ids, scores, vectors = draw_candidates(seed)
        scaled = [(of - of.min()) / (of.max() - of.min()) for of in scores.astype(np.float64)]
        for n in (1, 2, 3, 5, 8, 12):
            tables = [cosine_similarities(vectors, ids[user]) for user in range(6)]
            expected = [pick_max_sum(scaled[u], tables[u], n, strength) for u in range(6)]
            picked = rerank(ids, scores, vectors, n, strength=strength)
            assert picked[:, :n].tolist() == expected and (np.sort(picked, axis=1) == np.arange(25)).all()


def test_short_rows_equal_scores_duplicates_and_unknown_items():
    _, _, vectors = draw_candidates(2)
    vectors[[1, 2, 3]] = vectors[0]  # equal items
    vectors[5] = 0  # an item that is like no other
    ids = np.array([[0, 1, 2, 3, 5], [4, 6, -1, -1, -1], [-1] * 5], dtype=np.int32)
    scores = np.array([[5, 4, 3, 2, 1], [1, 1, -np.inf, -np.inf, -np.inf], [-np.inf] * 5], dtype=np.float32)
    picked = rerank(ids, scores, vectors, 5, strength=0.7)
    assert picked.tolist() == [[0, 4, 1, 2, 3], [0, 1, -1, -1, -1], [-1] * 5]


def test_projections_have_the_correlations_of_the_columns():
    matrix = random_matrix(3000, 50, 0.1, "csr", random_state=0)
    matrix.data[:] = np.random.default_rng(1).integers(1, 9, matrix.nnz)
    likes = (matrix > 0).toarray()
    error = project_items(matrix) @ project_items(matrix).T - np.corrcoef(likes.T)
    off = error[np.triu_indices(50, 1)]
    assert abs(off.mean()) < 0.01 and off.std() == pytest.approx(1 / 16, rel=0.1)
    assert (project_items(matrix, seed=1) != project_items(matrix)).any()


def test_an_item_that_nobody_or_everybody_likes_is_like_no_other():
    matrix = random_matrix(100, 9, 0.3, "csr", random_state=0).tolil()
    matrix[:, 4], matrix[:, 5] = 0, 1
    vectors = project_items(matrix.tocsr())
    assert not vectors[4:6].any() and np.allclose(np.linalg.norm(np.delete(vectors, [4, 5], axis=0), axis=1), 1)
