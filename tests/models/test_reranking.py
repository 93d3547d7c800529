"""Re-ranking against its definition in plain numpy."""

import numpy as np
import pytest
from scipy.sparse import random as random_matrix

from oneclass.models.numerics.constrained_top_k import Constraints, select_top_items
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.reranking import project_items, rerank, select_diverse_items, unit_rows


def draw_candidates(seed, users=6, candidates=25, width=40, items=60):
    """Candidates with scores, best first, and vectors."""
    random = np.random.default_rng(seed)
    vectors = unit_rows(random.normal(size=(items, width)) + 0.5)
    ids = np.stack([random.permutation(items)[:candidates] for _ in range(users)]).astype(np.int32)
    return ids, -np.sort(-random.normal(size=ids.shape), axis=1).astype(np.float32), vectors


def scale_scores(scores):
    scores = scores.astype(np.float64)
    return (scores - scores.min()) / (scores.max() - scores.min())


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
        for n in (1, 2, 3, 5, 8, 12):
            tables = [cosine_similarities(vectors, ids[user]) for user in range(6)]
            expected = [pick_max_sum(scale_scores(scores[u]), tables[u], n, strength) for u in range(6)]
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


def test_threads_and_other_users_change_nothing():
    ids, scores, vectors = draw_candidates(3, users=40)
    with kernel_threads(1):
        alone = rerank(ids[7:8], scores[7:8], vectors, 10, strength=0.4)
    with kernel_threads(2):
        assert (rerank(ids, scores, vectors, 10, strength=0.4)[7] == alone[0]).all()


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
