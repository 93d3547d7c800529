"""Attributes in the random-graph model: its updates and its bound with prior means, in NumPy and float64."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.attributes.new_items import fold_in_items, score_new_items
from oneclass.models.fit_options import FitOptions
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from oneclass.models.random_graph.posterior import VertexPrior
from tests.models.random_graph.dense_bound import (
    dense_bound,
    dense_moments,
    float_sides,
    random_case,
    updated_biases,
    updated_factors,
)

RIDGE = 3.0
TAUS = (1.7, 0.6, 0.9, 2.1)  # of `random_case`


def draw_features(rows, seed, columns=4):
    rng = np.random.default_rng(seed)
    return csr_matrix((rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < 0.6)).astype(np.float32))


def draw_case(factors=5, *, clamped=False, seed=0):
    """A random posterior with prior means of both sides, fitted to it, and a hidden graph."""
    q, graph, g, h = random_case(factors, clamped=clamped, seed=seed)
    q.user_prior = VertexPrior.build(draw_features(30, 1), h.any(axis=1), RIDGE, q.users)
    q.item_prior = VertexPrior.build(draw_features(20, 2), h.any(axis=0), RIDGE, q.items)
    q.update_priors()
    return q, graph, g, h


def least_squares(given, used, vectors):
    """The ridge regression of the posterior means on the features, by NumPy."""
    x = given.toarray() * used[:, None]
    rows = np.vstack([x, np.sqrt(RIDGE) * np.eye(x.shape[1])])
    return np.linalg.lstsq(rows, np.vstack([vectors, np.zeros((x.shape[1], vectors.shape[1]))]), rcond=None)[0]


def regression_maps(q, h, clamped=False):
    """A and a of both sides, (F, K + 1) with zeros for clamped biases, as their regressions have them."""
    found = []
    for prior in (q.user_prior, q.item_prior):
        coefficients = prior.regression.coefficients
        found.append(np.hstack([coefficients, np.zeros((4, prior.factors + 1 - coefficients.shape[1]))]))
    return found


def prior_means(q, h):
    used = h.any(axis=1), h.any(axis=0)
    return [
        (given.toarray() * on[:, None]) @ coefficients
        for given, on, coefficients in zip(
            (draw_features(30, 1), draw_features(20, 2)), used, regression_maps(q, h), strict=True
        )
    ]


def bound_with_priors(q, g, h):
    """Eq. 12 with N(A'f, 1 / tau) in place of N(0, 1 / tau), and the penalties of the maps."""
    users, items = float_sides(q)
    total = dense_bound(users, items, q.taus, g, h, np.sqrt(dense_moments(users, items)[1]))
    for first, side, means, coefficients in zip(
        (0, 2), (users, items), prior_means(q, h), regression_maps(q, h), strict=True
    ):
        for tau, mean, prior, of_map in (
            (first, side["mean"], means[:, :-1], coefficients[:, :-1]),
            (first + 1, side["bias_mean"], means[:, -1], coefficients[:, -1]),
        ):
            squares = ((mean - prior) ** 2).sum() - (mean**2).sum() + RIDGE * (of_map**2).sum()
            total -= 0.5 * q.taus.shape[tau] / q.taus.rate[tau] * squares
    return total


def assert_close(side, expected):
    for name, array in expected.items():
        assert getattr(side, name) == pytest.approx(array, rel=2e-5, abs=2e-5), name


@pytest.mark.parametrize("clamped", [True, False])
def test_the_maps_are_ridge_regressions(clamped):
    q, _, _, h = draw_case(clamped=clamped)
    for prior, side, given, used in (
        (q.user_prior, q.users, draw_features(30, 1), h.any(axis=1)),
        (q.item_prior, q.items, draw_features(20, 2), h.any(axis=0)),
    ):
        vectors = np.column_stack([side.mean, side.bias_mean])[:, : prior.regression.coefficients.shape[1]]
        assert prior.regression.coefficients == pytest.approx(least_squares(given, used, vectors), abs=1e-5)
    assert q.user_prior.regression.coefficients.shape == (4, 5 if clamped else 6)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("step", [1.0, 0.3])
def test_updates_are_those_of_the_equations_with_prior_means(joint, step):
    q, graph, g, h = draw_case()
    of_users, of_items = prior_means(q, h)
    users, items = float_sides(q)
    xi = np.sqrt(dense_moments(users, items)[1])
    q.update_users(graph, step, joint=joint)
    assert_close(q.users, updated_factors(users, items, g, h, xi, TAUS[:2], step, joint, of_users))
    users, items = float_sides(q)
    xi = np.sqrt(dense_moments(users, items)[1])
    q.update_items(graph, step, joint=joint)
    assert_close(q.items, updated_factors(items, users, g.T, h.T, xi.T, TAUS[2:], step, joint, of_items))
    users, items = float_sides(q)
    xi = np.sqrt(dense_moments(users, items)[1])
    q.update_item_biases(graph, step)
    assert_close(q.items, updated_biases(items, users, g.T, h.T, xi.T, TAUS[3], step, of_items))


@pytest.mark.parametrize("clamped", [True, False])
def test_the_bound_has_the_prior_means(clamped):
    q, graph, g, h = draw_case(clamped=clamped)
    assert q.bound(graph) == pytest.approx(bound_with_priors(q, g, h), rel=1e-6)


def test_precisions_agree_with_equation_20_around_the_prior_means():
    q, _, _, h = draw_case()
    users, items = float_sides(q)
    squares = []
    for side, means, coefficients in zip((users, items), prior_means(q, h), regression_maps(q, h), strict=True):
        squares.append(((side["mean"] - means[:, :-1]) ** 2 + 1 / side["precision"]).sum())
        squares[-1] += RIDGE * (coefficients[:, :-1] ** 2).sum()
        squares.append(((side["bias_mean"] - means[:, -1]) ** 2 + 1 / side["bias_precision"]).sum())
        squares[-1] += RIDGE * (coefficients[:, -1] ** 2).sum()
    q.update_taus(1.0)
    assert q.taus.rate == pytest.approx(0.01 + np.array(squares) / 2, rel=1e-5)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("clamped", [False, True])
def test_on_a_fixed_graph_no_block_lowers_the_bound(joint, clamped):
    q, graph, _, _ = draw_case(6, clamped=clamped, seed=4)
    blocks = {
        "maps": q.update_priors,
        "user biases": lambda: None if clamped or joint else q.update_user_biases(graph, 1.0),
        "item biases": lambda: None if joint else q.update_item_biases(graph, 1.0),
        "users": lambda: q.update_users(graph, 1.0, joint=joint and not clamped),
        "items": lambda: q.update_items(graph, 1.0, joint=joint),
        "precisions": lambda: q.update_taus(1.0),
    }
    last = first = q.bound(graph)
    for _ in range(15):
        for name, update in blocks.items():
            update()
            value = q.bound(graph)
            assert value >= last - 2e-6 * abs(last), name
            last = value
    assert last > first + 50


SHORT = {"factors": 5, "iterations": 14, "t_tau": 4, "t_epsilon": 6, "attribute_regularization": RIDGE}


@pytest.fixture(scope="module")
def likes(long_tailed):
    """A user and an item without an edge."""
    likes = long_tailed[:90].toarray()
    likes[7], likes[:, 11] = 0, 0
    return csr_matrix(likes.astype(np.float32))


OPTIONS = FitOptions(item_features=draw_features(120, 5), user_features=draw_features(90, 6))


def fit_model(likes, options=OPTIONS, threads=1, **more):
    return RandomGraph(RandomGraphSettings(**SHORT, **more), seed=3, threads=threads).fit(likes, options)


@pytest.mark.parametrize("settings", [{}, {"user_biases": True, "joint_bias": True}])
def test_vertices_without_an_edge_have_the_prior(likes, settings):
    model = fit_model(likes, **settings)
    means = OPTIONS.item_features[[11]] @ model.item_map
    assert model.posterior.items.mean[11] == pytest.approx(means[0, :5], abs=1e-6)
    assert model.posterior.items.bias_mean[11] == pytest.approx(means[0, 5], abs=1e-6)
    assert model.posterior.items.precision[11] == pytest.approx(model.posterior.taus.mean(2), rel=0.1)
    assert model.posterior.users.mean[7] == pytest.approx(
        (OPTIONS.user_features[[7]] @ model.user_map)[0, :5], abs=1e-6
    )
    assert model.user_map.shape == (4, 5 + bool(settings))


def test_new_items_have_the_scores_of_their_prior(likes):
    model = fit_model(likes)
    new = fold_in_items(model, OPTIONS.item_features[:3])
    rows = np.arange(6)
    like, product, odds = (
        score_new_items(model, likes[rows], new, users=rows, score=score) for score in model.score_names
    )
    users, means = model.posterior.users.rows(rows), OPTIONS.item_features[:3] @ model.item_map
    tau, tau_bias = model.posterior.taus.mean(2), model.posterior.taus.mean(3)
    mean = users.mean @ means[:, :5].T + means[:, 5]
    variance = (1 / users.precision) @ (means[:, :5] ** 2).T + 1 / tau_bias
    variance += (users.mean**2 + 1 / users.precision).sum(axis=1)[:, None] / tau
    logits = mean / np.sqrt(1 + np.pi * variance / 8)
    shares = new.nearest @ model.histogram
    assert like == pytest.approx(1 / (1 + np.exp(-logits)), abs=1e-5)
    assert product == pytest.approx(like * shares, rel=1e-4)
    assert odds == pytest.approx(logits + 0.5 * np.log(shares), abs=1e-4)


def test_folding_in_knows_the_attributes_of_users_that_are_given(likes):
    model = fit_model(likes)
    nobody = csr_matrix((9, 120), dtype=np.float32)
    assert model.fold_in(nobody, OPTIONS.user_features[:9]).mean == pytest.approx(
        OPTIONS.user_features[:9] @ model.user_map, abs=1e-5
    )
    assert not model.fold_in(nobody).mean.any()


@pytest.mark.slow  # kernels that only blocks of users need are compiled
@pytest.mark.parametrize("joint", [False, True])
def test_blocks_of_users_make_the_fit_of_one_machine(likes, joint):
    options = FitOptions(item_features=OPTIONS.item_features)
    one, other = (fit_model(likes, options, blocks=blocks, joint_bias=joint) for blocks in (1, 3))
    for name, array in one._arrays().items():
        np.testing.assert_allclose(other._arrays()[name], array, rtol=2e-4, atol=2e-4, err_msg=name)
    with pytest.raises(ValueError, match="takes no attributes of users; set blocks = 1"):
        fit_model(likes, blocks=3)
