"""The random-graph model against its bound and updates in NumPy and float64, from Paquet and Koenigstein (2014)."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import gammaln, psi

from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.adjacency import copy_pattern
from oneclass.models.numerics.logistic_bound import GaussianFactors
from oneclass.models.random_graph.inference import (
    HiddenGraph,
    PrecisionPosterior,
    RandomGraphPosterior,
    step_sizes,
)
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings


def float_sides(posterior):
    """Float64 copies of both sides: dictionaries with eta, omega, bias and its precision."""
    names = "mean", "precision", "bias_mean", "bias_precision"
    both = posterior.users, posterior.items
    return tuple({name: getattr(side, name).astype(float) for name in names} for side in both)


def dense_state(q):
    """Both sides of a posterior in float64, and the best xi of every pair."""
    users, items = float_sides(q)
    return users, items, np.sqrt(dense_moments(users, items)[1])


def dense_moments(users, items):
    """E[a] and E[a^2] of every pair, (M, N) each."""
    mean = users["mean"] @ items["mean"].T + users["bias_mean"][:, None] + items["bias_mean"]
    u_second, v_second = (side["mean"] ** 2 + 1 / side["precision"] for side in (users, items))
    variance = u_second @ v_second.T - users["mean"] ** 2 @ (items["mean"] ** 2).T
    variance += 1 / users["bias_precision"][:, None] + 1 / items["bias_precision"]
    return mean, mean**2 + variance


def logistic_lambda(xi):
    """Jaakkola and Jordan's lambda, below eq. 11."""
    return (1 / (1 + np.exp(-xi)) - 0.5) / (2 * xi)


def dense_bound(users, items, taus, g, h, xi):
    """Eq. 12 on a given H: expectation of log p_xi plus entropy; every constant kept."""
    mean, second = dense_moments(users, items)
    edges = -np.log1p(np.exp(-xi)) + (g - 0.5) * mean - xi / 2 - logistic_lambda(xi) * (second - xi**2)
    total = (h * edges).sum()
    used = []
    for side, which in ((users, 0), (items, 2)):
        for part, tau in (("", which), ("bias_", which + 1)):
            if np.isfinite(side[part + "precision"]).all():
                used.append(tau)
                gamma = taus.shape[tau], taus.rate[tau]
                total += _gaussian_terms(side[part + "mean"], side[part + "precision"], *gamma)
    for tau in used:
        shape, rate, alpha, beta = taus.shape[tau], taus.rate[tau], 0.01, 0.01
        log_tau = psi(shape) - np.log(rate)
        total += alpha * np.log(beta) - gammaln(alpha) + (alpha - 1) * log_tau - beta * shape / rate
        total += shape - np.log(rate) + gammaln(shape) + (1 - shape) * psi(shape)
    return total


def _gaussian_terms(mean, precision, shape, rate):
    log_density = 0.5 * (psi(shape) - np.log(rate) - np.log(2 * np.pi))
    log_density -= 0.5 * shape / rate * (mean**2 + 1 / precision)
    return (log_density + 0.5 * np.log(2 * np.pi * np.e / precision)).sum()


def random_side(rng, count, factors, clamped=False):
    side = GaussianFactors.prior(count, factors, clamped=clamped)
    side.mean[:] = rng.normal(0, 0.6, side.mean.shape)
    side.precision[:] = rng.uniform(0.5, 6, side.precision.shape)
    if not clamped:
        side.bias_mean[:] = rng.normal(0, 0.8, count)
        side.bias_precision[:] = rng.uniform(0.5, 6, count)
    return side


def updated_factors(side, other, g, h, xi, tau, step):
    """Eq. 15, 17 and 18 for every vertex of `side`; g, h and xi are (vertices, others)."""
    new = {name: array.copy() for name, array in side.items()}
    factors = side["mean"].shape[1]
    for vertex in range(len(g)):
        precision, z = tau * np.eye(factors), np.zeros(factors)
        for n in np.nonzero(h[vertex])[0]:
            weight, x = 2 * logistic_lambda(xi[vertex, n]), other["mean"][n]
            precision += weight * (np.outer(x, x) + np.diag(1 / other["precision"][n]))
            z += (g[vertex, n] - 0.5 - weight * (other["bias_mean"][n] + side["bias_mean"][vertex])) * x
        omega, eta = side["precision"][vertex], side["mean"][vertex]
        precision = step * precision + (1 - step) * np.diag(omega)
        new["mean"][vertex] = np.linalg.solve(precision, step * z + (1 - step) * omega * eta)
        new["precision"][vertex] = np.diag(precision)
    return new


def updated_biases(side, other, g, h, xi, tau, step):
    """Eq. 19 for every vertex of `side`."""
    new = {name: array.copy() for name, array in side.items()}
    rest = side["mean"] @ other["mean"].T + other["bias_mean"]
    weights = h * 2 * logistic_lambda(xi)
    precision = step * (weights.sum(1) + tau) + (1 - step) * side["bias_precision"]
    z = step * (h * (g - 0.5) - weights * rest).sum(1)
    z += (1 - step) * side["bias_precision"] * side["bias_mean"]
    new["bias_mean"], new["bias_precision"] = z / precision, precision
    return new


M, N = 30, 20


def random_case(factors, *, seed=0):
    """A posterior, and a fixed H as a HiddenGraph and as dense g and h."""
    rng = np.random.default_rng(seed)
    taus = PrecisionPosterior.from_mean(1.0, (M, N), factors)
    taus.rate = taus.shape / np.array([1.7, 0.6, 0.9, 2.1])
    g = rng.random((M, N)) < 0.3
    h = g | (rng.random((M, N)) < 0.4)
    g[3] = h[3] = False  # a user and an item without edges
    g[:, 5] = h[:, 5] = False
    parts = [copy_pattern(csr_matrix(part)) for part in (g, h & ~g, g.T, (h & ~g).T)]
    q = RandomGraphPosterior(random_side(rng, M, factors, clamped=True), random_side(rng, N, factors), taus)
    return q, HiddenGraph(*parts), g.astype(float), h.astype(float)


def assert_side(side, expected):
    """Assert that the arrays of one side are those of a dictionary."""
    for name, array in expected.items():
        np.testing.assert_allclose(getattr(side, name), array, rtol=2e-5, atol=2e-5, err_msg=name)


def test_step_sizes_are_those_of_algorithm_1(monkeypatch):
    monkeypatch.setattr("oneclass.models.random_graph.inference.T_EPSILON", 2)
    steps = list(step_sizes(6))
    a = 1.0
    expected = [1.0, 1.0, 1.0, 1.0]
    for delta in (2, 3):
        a = (1 - delta**-0.6) * a + 1
        expected.append(1 / a)
    assert steps == pytest.approx(expected)


def draw_two_tastes(users=240, items=60, seed=0):
    """Two tastes: even users like even items, odd users odd ones, each about half of them."""
    rng = np.random.default_rng(seed)
    same = (np.arange(users)[:, None] + np.arange(items)) % 2 == 0
    return csr_matrix((same & (rng.random((users, items)) < 0.5)).astype(float)), same


def fit_model(matrix, seed=3, threads=1, **settings):
    settings = RandomGraphSettings(**({"factors": 4, "iterations": 25} | settings))
    return RandomGraph(settings, seed=seed, threads=threads).fit(matrix)


@pytest.fixture(scope="module")
def checkerboard():
    matrix, same = draw_two_tastes()
    return fit_model(matrix), matrix, same


def test_scores_are_made_of_like_and_popularity(checkerboard):
    model, matrix, _ = checkerboard
    rows = np.arange(10)
    like, product, odds = (model.scores(matrix[rows], users=rows, score=name) for name in model.score_names)
    pi = model.item_degrees / model.item_degrees.sum()
    assert product == pytest.approx(like * pi, rel=1e-5)
    assert odds == pytest.approx(np.log(like / (1 - like)) + 0.5 * np.log(pi), abs=1e-4)
    assert (model.scores(matrix[rows], users=rows, items=np.array([7, 1])) == like[:, [7, 1]]).all()


def test_like_and_its_spread_agree_with_draws_from_the_posterior(checkerboard):
    model, matrix, _ = checkerboard
    rng = np.random.default_rng(1)
    rows = np.arange(6)
    mean, spread = model.like(matrix[rows], users=rows)
    assert mean == pytest.approx(model.scores(matrix[rows], users=rows), abs=1e-6)
    users, items = model._user_side(matrix[rows], rows), model.posterior.items
    u, v = (rng.normal(side.mean, 1 / np.sqrt(side.precision), (4000, *side.mean.shape)) for side in (users, items))
    bias = rng.normal(items.bias_mean, 1 / np.sqrt(items.bias_precision), (4000, 60))
    draws = 1 / (1 + np.exp(-(u @ v.transpose(0, 2, 1) + bias[:, None])))
    assert spread == pytest.approx(draws.std(axis=0), abs=0.02)  # a is not quite Gaussian
    assert mean == pytest.approx(draws.mean(axis=0), abs=0.02)
    columns = np.array([[3, -1], [0, 59], [7, 7], [1, 2], [5, 4], [8, 9]])
    pair_mean, pair_spread = model.like(matrix[rows], users=rows, items=columns)
    assert np.isnan(pair_mean[0, 1]) and np.isnan(pair_spread[0, 1])
    assert pair_mean[1:] == pytest.approx(np.take_along_axis(mean, columns, 1)[1:], abs=1e-6)
    assert pair_spread[1:] == pytest.approx(np.take_along_axis(spread, columns, 1)[1:], abs=1e-5)


@pytest.fixture
def every_bound(monkeypatch):
    monkeypatch.setattr("oneclass.models.random_graph.model.BOUND_EVERY", 1)


@pytest.mark.usefixtures("every_bound")
@pytest.mark.parametrize("settings", [{}, {"learn_tau": False}])
def test_the_bound_rises_in_a_moving_average(settings, monkeypatch):
    monkeypatch.setattr("oneclass.models.random_graph.model.T_TAU", 0)
    monkeypatch.setattr("oneclass.models.random_graph.model.TOLERANCE", 0.0)
    matrix, _ = draw_two_tastes()
    seen = []
    settings = RandomGraphSettings(factors=4, iterations=40, **settings)
    RandomGraph(settings, seed=2).fit(matrix, FitOptions(on_epoch=lambda epoch: seen.append(epoch.values["bound"])))
    averages = np.convolve(seen, np.ones(8) / 8, "valid")[::8]
    assert (np.diff(averages) > 0).all()


@pytest.mark.parametrize("factors", [1, 13, 14, 15, 20, 29, 46])
@pytest.mark.parametrize("step", [1.0, 0.3])
def test_factor_updates_agree_with_equations_17_and_18(factors, step):
    q, graph, g, h = random_case(factors)
    users, items, xi = dense_state(q)
    q.update_users(graph, step)
    assert_side(q.users, updated_factors(users, items, g, h, xi, 1.7, step))
    users, items, xi = dense_state(q)
    q.update_items(graph, step)
    assert_side(q.items, updated_factors(items, users, g.T, h.T, xi.T, 0.9, step))


@pytest.mark.parametrize("step", [1.0, 0.3])
def test_bias_updates_agree_with_equation_19(step):
    q, graph, g, h = random_case(20)
    users, items, xi = dense_state(q)
    q.update_item_biases(graph, step)
    assert_side(q.items, updated_biases(items, users, g.T, h.T, xi.T, 2.1, step))


def test_precisions_agree_with_equation_20():
    q, _, _, _ = random_case(4)
    users, items = float_sides(q)
    old = q.taus.rate.copy()
    q.update_taus(0.25)
    parts = (users, ""), (items, ""), (items, "bias_")
    squares = [np.sum(side[part + "mean"] ** 2 + 1 / side[part + "precision"]) for side, part in parts]
    learned = [0, 2, 3]  # users' biases are clamped
    assert q.taus.rate[learned] == pytest.approx(0.75 * old[learned] + 0.25 * (0.01 + np.array(squares) / 2))
    assert q.taus.shape == pytest.approx([0.01 + 60, 0.01 + 15, 0.01 + 40, 0.01 + 10])


def test_the_bound_agrees_with_equation_12():
    q, graph, g, h = random_case(5)
    users, items, xi = dense_state(q)
    assert q.bound(graph) == pytest.approx(dense_bound(users, items, q.taus, g, h, xi), rel=1e-6)


def test_on_a_fixed_graph_no_block_update_lowers_the_bound():
    q, graph, _, _ = random_case(6, seed=4)
    last = first = q.bound(graph)
    for _ in range(15):
        for update in (q.update_item_biases, q.update_users, q.update_items, lambda _, step: q.update_taus(step)):
            update(graph, 1.0)
            value = q.bound(graph)
            assert value >= last - 2e-6 * abs(last)
            last = value
    assert last > first + 50
