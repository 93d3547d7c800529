"""Fits with availability windows: h is zero where a user could never have considered an item."""

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import FitOptions
from oneclass.models.negatives.availability import UNDECLARED, find_availability
from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages
from oneclass.models.random_graph.inference import RandomGraphPosterior
from oneclass.models.random_graph.model import RandomGraph
from oneclass.models.random_graph.posterior import PrecisionPosterior
from tests.models.negatives.test_availability import draw_timed_likes
from tests.models.random_graph.dense_bound import dense_bound, dense_moments, float_sides, random_side

USERS, ITEMS = 40, 25
LIKES = np.random.default_rng(5).random((USERS, ITEMS)) < np.linspace(0.02, 0.5, USERS)[:, None]
LIKES[:, 3] = False
MATRIX = draw_timed_likes(LIKES, 6, days=60)


def to_dense(graph: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    found = np.zeros((USERS, ITEMS))
    np.add.at(found, (np.repeat(np.arange(USERS), np.diff(graph[0])), graph[1]), 1)
    return found


def same_bits(one: RandomGraph, other: RandomGraph) -> bool:
    arrays = other._arrays()
    return all(np.array_equal(array, arrays[name]) for name, array in one._arrays().items() if name != "item_windows")


@pytest.mark.parametrize("explicit", [False, True])
def test_the_bound_and_its_updates_are_those_of_a_graph_without_unavailable_pairs(explicit: bool) -> None:
    rng = np.random.default_rng(7)
    negatives = ~LIKES & (rng.random(LIKES.shape) < 0.05) if explicit else np.zeros_like(LIKES)
    model = RandomGraph(availability=True, explicit_negatives=explicit)
    model.item_degrees = LIKES.sum(axis=0)
    graph = model.sampler(MATRIX, csr_matrix(negatives, dtype=np.float32)).draw(1)
    available, found = find_availability(MATRIX, model.item_windows).mask(), to_dense(graph.negatives)
    free = available & ~LIKES & ~negatives & (LIKES.sum(axis=0) > 0)
    random = np.minimum(np.maximum(LIKES.sum(axis=1) - negatives.sum(axis=1), 0), free.sum(axis=1))
    assert 0 < free.sum() < (~LIKES).sum() and not found[~(free | negatives)].any()
    assert found.sum(axis=1).tolist() == (random + negatives.sum(axis=1)).tolist()
    taus = PrecisionPosterior.from_mean(1.3, (USERS, ITEMS), 3, 0.01, 0.01)
    q = RandomGraphPosterior(random_side(rng, USERS, 3), random_side(rng, ITEMS, 3), taus)
    sides, likes = float_sides(q), LIKES.astype(float)
    xi = np.sqrt(dense_moments(*sides)[1])
    assert q.bound(graph) == pytest.approx(dense_bound(*sides, q.taus, likes, likes + found, xi), rel=1e-6)
    q.update_items(graph, step=1.0, joint=True)
    after = float_sides(q)
    value = dense_bound(*after, q.taus, likes, likes + found, xi)
    for item in (0, 9, 17):
        for shift in (-0.01, 0.01):
            after[1]["mean"][item, 1] += shift
            assert dense_bound(*after, q.taus, likes, likes + found, xi) < value
            after[1]["mean"][item, 1] -= shift


def test_where_everything_is_available_a_fit_is_the_papers_own() -> None:
    settings = {"factors": 4, "iterations": 14, "seed": 2}
    plain = RandomGraph(**settings).fit(csr_matrix(MATRIX))
    always = np.tile(np.array([[10**6], [-(10**6)]], dtype=np.int32), ITEMS)
    assert same_bits(plain, RandomGraph(**settings).fit(MATRIX))
    assert same_bits(plain, RandomGraph(**settings, availability=True).fit(MATRIX, FitOptions(item_windows=always)))
    one, two = (RandomGraph(**settings, availability=True, threads=n).fit(MATRIX) for n in (1, 2))
    assert same_bits(one, two) and not same_bits(plain, one)
    undeclared = np.full((2, ITEMS), UNDECLARED, dtype=np.int32)
    again = RandomGraph(**settings, availability=True).fit(MATRIX, FitOptions(item_windows=undeclared))
    assert same_bits(one, again) and np.array_equal(again.item_windows, one.item_windows)


@pytest.mark.slow
def test_an_item_that_came_late_is_liked_as_much_by_those_who_could_have_it(tmp_path) -> None:
    """Three in four users left before the item came; that they do not have it says nothing of its liking."""
    rng, users = np.random.default_rng(3), 400
    likes = rng.random((users, 30)) < 0.3
    late, left = 7, np.arange(users) < 300
    likes[left, late] = False
    matrix = csr_matrix(likes.astype(np.float32))
    rows = np.repeat(np.arange(users), np.diff(matrix.indptr))
    days = np.where((matrix.indices == late) | ~left[rows], 5, 50).astype(np.int32)
    matrix = with_event_ages(matrix, EventAges(np.arange(matrix.nnz + 1), days))
    fits = {on: RandomGraph(availability=on, factors=2, seed=1).fit(matrix) for on in (False, True)}
    there = np.flatnonzero(~left)
    like = {on: fit.like(matrix[there], users=there)[0].mean(axis=0) for on, fit in fits.items()}
    gap = {on: mean[late] - np.delete(mean, late).mean() for on, mean in like.items()}
    assert gap[False] < -0.01 and abs(gap[True]) < 0.005
    fits[True].save(tmp_path)
    read = RandomGraph.load(tmp_path)
    assert np.array_equal(read.item_windows, fits[True].item_windows)
    assert np.array_equal(read.scores(matrix[:9]), fits[True].scores(matrix[:9]))
    drawn = read.negative_distribution().draw(matrix, np.arange(users), 4)
    assert (drawn[~left] == late).any() and not (drawn[left] == late).any()


def test_a_user_who_is_folded_in_considers_what_was_there() -> None:
    model = RandomGraph(availability=True, factors=4, iterations=14, seed=2).fit(MATRIX)
    assert np.array_equal(model.scores(MATRIX[4:9]), model.scores(MATRIX)[4:9])  # whatever the rows are
    assert not np.array_equal(model.scores(csr_matrix(MATRIX)), model.scores(MATRIX))  # without ages, of all items


def test_settings_that_contradict_one_another_are_refused() -> None:
    for settings in ({"blocks": 2}, {"balance_popular": True}):
        with pytest.raises(ValidationError, match="availability"):
            RandomGraph(availability=True, **settings)
    with pytest.raises(ValueError, match="needs the times of events"):
        RandomGraph(availability=True).fit(csr_matrix(MATRIX))
