"""Observed negatives: which graphs are drawn, and the bound that is climbed on them."""

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import FitOptions
from oneclass.models.negatives.sampling import degree_histogram
from oneclass.models.numerics.adjacency import copy_pattern
from oneclass.models.random_graph.explicit_negatives import ExplicitNegativeSampler
from oneclass.models.random_graph.inference import PrecisionPosterior, RandomGraphPosterior
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from tests.models.random_graph.test_random_graph import dense_bound, dense_moments, float_sides, random_side

pytestmark = pytest.mark.slow

USERS, ITEMS = 40, 25


def draw_considered(seed=0):
    """Likes and observed negatives, bool (users, items), of users with many, few or none of either."""
    rng = np.random.default_rng(seed)
    likes = rng.random((USERS, ITEMS)) < rng.uniform(0, 0.6, (USERS, 1))
    observed = ~likes & (rng.random((USERS, ITEMS)) < rng.uniform(0, 0.8, (USERS, 1)))
    likes[3] = observed[4] = False  # no like, no observed negative
    likes[5], observed[5] = np.arange(ITEMS) < 20, np.arange(ITEMS) >= 20  # nothing is left
    likes[:, 7], observed[6, 7] = False, True  # an item without likes
    return likes, observed


def make_sampler(likes, observed, seed=2):
    parts = copy_pattern(csr_matrix(likes)), copy_pattern(csr_matrix(observed))
    return ExplicitNegativeSampler(
        *parts, degree_histogram(likes.sum(axis=0), 0.7), seed, np.arange(len(likes), dtype=np.uint64)
    )


def to_dense(graph):
    starts, items = graph
    found = np.zeros((USERS, ITEMS), dtype=int)
    np.add.at(found, (np.repeat(np.arange(USERS), np.diff(starts)), items), 1)
    return found


def test_observed_negatives_are_in_every_graph_and_the_rest_is_drawn_beside_them():
    likes, observed = draw_considered()
    graphs, draws = make_sampler(likes, observed), np.zeros((USERS, ITEMS))
    weights = graphs.weights
    degrees, known = likes.sum(axis=1), observed.sum(axis=1)
    left = ((weights > 0) & ~likes & ~observed).sum(axis=1)
    for iteration in range(2000):
        found = to_dense(graphs.negatives(iteration))
        assert found.max() == 1 and (found[observed] == 1).all() and not found[likes].any()
        assert (found.sum(axis=1) == known + np.clip(degrees - known, 0, left)).all()
        draws += found
    assert not draws[~observed][:, None][(weights == 0)[np.nonzero(~observed)[1]]].any()
    user = int(np.flatnonzero((degrees - known > 1) & (degrees - known < left - 3))[0])  # its law, against a naive one
    free = np.flatnonzero((weights > 0) & ~likes[user] & ~observed[user])
    rng, naive = np.random.default_rng(1), np.zeros(ITEMS)
    for _ in range(4000):
        p = weights[free] / weights[free].sum()
        naive[rng.choice(free, degrees[user] - known[user], replace=False, p=p)] += 1 / 4000
    assert draws[user, free] / 2000 == pytest.approx(naive[free], abs=0.05)  # three standard errors and more


def fit_model(likes, observed=None, threads=1, **settings):
    settings = RandomGraphSettings(**({"factors": 4, "iterations": 14} | settings))
    likes = csr_matrix(likes, dtype=np.float32)
    negatives = None if observed is None else csr_matrix(observed, dtype=np.float32)
    return RandomGraph(settings, seed=2, threads=threads).fit(likes, FitOptions(explicit_negatives=negatives))


def same_bits(one, other):
    return all(np.array_equal(array, other._arrays()[name]) for name, array in one._arrays().items())


def test_without_the_setting_or_without_an_observed_negative_a_fit_is_the_papers_own():
    likes, observed = draw_considered(1)
    plain = fit_model(likes)
    assert same_bits(plain, fit_model(likes, observed))
    assert same_bits(plain, fit_model(likes, np.zeros_like(observed), explicit_negatives=True))
    assert same_bits(plain, fit_model(likes, explicit_negatives=True))
    assert not same_bits(plain, fit_model(likes, observed, explicit_negatives=True))


def draw_case(seed=3):
    """A posterior, one draw of the graph, and its three parts: likes, observed negatives and random ones, dense."""
    rng = np.random.default_rng(seed)
    likes, observed = draw_considered(seed)
    taus = PrecisionPosterior.from_mean(1.3, (USERS, ITEMS), 3)
    q = RandomGraphPosterior(random_side(rng, USERS, 3, clamped=True), random_side(rng, ITEMS, 3), taus)
    graph = make_sampler(likes, observed).draw(1)
    random = (to_dense(graph.negatives) - observed).astype(float)
    assert random.sum() > 50 and observed.sum() > 50
    return q, graph, likes.astype(float), observed.astype(float), random


def test_the_bound_is_that_of_three_kinds_of_edges():
    q, graph, likes, observed, random = draw_case()
    sides = float_sides(q)
    mean, second = dense_moments(*sides)
    xi = np.sqrt(second)
    none = np.zeros_like(likes)
    terms = -np.log1p(np.exp(-xi)) - xi / 2  # lambda(xi) (E a^2 - xi^2) is 0 at the best xi
    known = (likes * (terms + mean / 2)).sum() + (observed * (terms - mean / 2)).sum()
    drawn = (random * (terms - mean / 2)).sum()
    rest = dense_bound(*sides, q.taus, none, none, xi)  # of the priors and q
    assert q.bound(graph) == pytest.approx(known + drawn + rest, rel=1e-6)


def test_what_cannot_be_is_refused():
    likes, observed = draw_considered()
    with pytest.raises(ValueError, match="of them are likes too"):
        fit_model(likes, observed | likes, explicit_negatives=True)
    with pytest.raises(ValueError, match=r"\(40, 24\)"):
        fit_model(likes, observed[:, 1:], explicit_negatives=True)
    with pytest.raises(ValidationError, match="set blocks = 1"):
        RandomGraphSettings(explicit_negatives=True, blocks=2)
