"""Lists with variety under constraints: what `select_top_items` guarantees holds, and similarity falls."""

import numpy as np
import pytest

from oneclass.models.numerics.constrained_top_k import Constraints, select_top_items
from oneclass.models.reranking import rerank, select_diverse_items, unit_rows

USERS, ITEMS, N = 30, 120, 8


def draw_arguments(seed, *, boosts=True):
    """The arguments of `select_top_items` with two sets of users, pins, limits and excluded items; and vectors."""
    random = np.random.default_rng(seed)
    excluded = [np.sort(random.permutation(ITEMS)[: random.integers(0, 20)]) for _ in range(USERS)]
    categories = [np.unique(random.integers(0, 6, random.integers(0, 3))) for _ in range(ITEMS)]
    constraints = Constraints(
        random.random((2, ITEMS)) < 0.8,
        random.choice([0, 0, 0.5, -1], (2, ITEMS)).astype(np.float32) if boosts else None,
        random.permutation(ITEMS)[:3].astype(np.int32),
        np.cumsum([0, *map(len, categories)]),
        np.concatenate(categories).astype(np.int32),
        random.integers(1, 4, 6).astype(np.int32),
    )
    arguments = (
        random.normal(size=(USERS, ITEMS)).astype(np.float32),
        np.cumsum([0, *map(len, excluded)]),
        np.concatenate(excluded).astype(np.int32),
        random.integers(0, 2, USERS).astype(np.int32),
        constraints,
    )
    return arguments, unit_rows(random.normal(size=(ITEMS, 20)) + 0.7)


@pytest.mark.parametrize("boosts", [False, True])
def test_no_strength_gives_the_lists_without_variety(boosts):
    for seed in range(5):
        arguments, vectors = draw_arguments(seed, boosts=boosts)
        ids, scores = select_diverse_items(*arguments, N, vectors=vectors, strength=0)
        expected, best = select_top_items(*arguments, N)
        assert (ids == expected).all() and (scores == best).all()


def test_constraints_hold_lists_are_full_and_similarity_falls():
    def measure(ids):
        return np.mean([np.triu(vectors[row[row >= 0]] @ vectors[row[row >= 0]].T, 1).sum() for row in ids])

    for seed in range(10):
        (scores, indptr, indices, sets, constraints), vectors = draw_arguments(seed)
        plain, _ = select_top_items(scores, indptr, indices, sets, constraints, N)
        ids, best = select_diverse_items(scores, indptr, indices, sets, constraints, N, vectors=vectors, strength=0.8)
        assert measure(ids) < measure(plain)
        for user, row in enumerate(ids):
            listed = row[row >= 0]
            assert len(listed) == len(set(listed)) == (plain[user] >= 0).sum()
            assert constraints.eligible[sets[user], listed].all()
            assert not np.isin(listed, indices[indptr[user] : indptr[user + 1]]).any()
            counts = np.zeros(6)
            for item in listed:
                start, stop = constraints.category_indptr[item : item + 2]
                counts[constraints.category_indices[start:stop]] += 1
            assert (counts <= constraints.limits).all()
            is_pinned = np.isin(listed, constraints.pinned)
            assert listed[is_pinned].tolist() == [item for item in plain[user] if item in constraints.pinned]
            assert (np.diff(best[user][: len(listed)][~is_pinned]) <= 0).all() and is_pinned[: is_pinned.sum()].all()


def test_without_constraints_the_picks_are_those_of_rerank():
    (scores, *_), vectors = draw_arguments(3)
    none = np.empty(0, dtype=np.int32)
    free = Constraints(np.ones((1, ITEMS), dtype=bool), None, none, np.zeros(ITEMS + 1, dtype=np.int64), none, none)
    nobody = np.zeros(USERS + 1, dtype=np.int64), none, np.zeros(USERS, dtype=np.int32)
    ids, best = select_diverse_items(scores, *nobody, free, N, vectors=vectors, strength=0.5)
    order = np.argsort(-scores, axis=1)[:, : 5 * N].astype(np.int32)
    picks = rerank(order, np.take_along_axis(scores, order, 1), vectors, N, strength=0.5, method="max_sum")
    assert (ids == np.take_along_axis(order, np.sort(picks, axis=1), 1)).all()
    assert (best == np.take_along_axis(scores, ids.astype(np.int64), 1)).all()
