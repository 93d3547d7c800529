"""Every block update of the random-graph model against its equations and the bound.

The dense functions, here and in `dense_bound`, are written straight from Paquet and Koenigstein (2014).
"""

import itertools
from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.numerics.adjacency import copy_pattern
from oneclass.models.random_graph.inference import HiddenGraph, RandomGraphPosterior
from oneclass.models.random_graph.posterior import PrecisionPosterior
from tests.models.random_graph.dense_bound import dense_bound, dense_moments, float_sides, lam, random_side


def updated_factors(side, other, g, h, xi, taus, step, joint):
    """Eq. 15, 17 and 18 for every vertex of `side`; g, h and xi are (vertices, others)."""
    new = {name: array.copy() for name, array in side.items()}
    factors = side["mean"].shape[1]
    size = factors + joint
    for vertex in range(len(g)):
        precision = np.diag([taus[0]] * factors + [taus[1]])
        z = np.zeros(factors + 1)
        for n in np.nonzero(h[vertex])[0]:
            weight = 2 * lam(xi[vertex, n])
            x = np.append(other["mean"][n], 1.0)
            variance = np.append(1 / other["precision"][n], 0.0)
            precision += weight * (np.outer(x, x) + np.diag(variance))
            held = other["bias_mean"][n] + (0 if joint else side["bias_mean"][vertex])
            z += (g[vertex, n] - 0.5 - weight * held) * x
        omega = np.append(side["precision"][vertex], side["bias_precision"][vertex])[:size]
        eta = np.append(side["mean"][vertex], side["bias_mean"][vertex])[:size]
        precision = step * precision[:size, :size] + (1 - step) * np.diag(omega)
        mean = np.linalg.solve(precision, step * z[:size] + (1 - step) * omega * eta)
        new["mean"][vertex], new["precision"][vertex] = mean[:factors], np.diag(precision)[:factors]
        if joint:
            new["bias_mean"][vertex] = mean[factors]
            new["bias_precision"][vertex] = precision[factors, factors]
    return new


def updated_biases(side, other, g, h, xi, tau, step):
    """Eq. 19 for every vertex of `side`."""
    new = {name: array.copy() for name, array in side.items()}
    rest = side["mean"] @ other["mean"].T + other["bias_mean"]
    weights = h * 2 * lam(xi)
    precision = step * (weights.sum(1) + tau) + (1 - step) * side["bias_precision"]
    z = step * (h * (g - 0.5) - weights * rest).sum(1)
    z += (1 - step) * side["bias_precision"] * side["bias_mean"]
    new["bias_mean"], new["bias_precision"] = z / precision, precision
    return new


M, N = 30, 20


def random_case(factors, *, clamped=False, seed=0):
    """A posterior, and a fixed H as a HiddenGraph and as dense g and h."""
    rng = np.random.default_rng(seed)
    taus = PrecisionPosterior.from_mean(1.0, (M, N), factors, 0.01, 0.01)
    taus.rate = taus.shape / np.array([1.7, 0.6, 0.9, 2.1])
    g = rng.random((M, N)) < 0.3
    h = g | (rng.random((M, N)) < 0.4)
    g[3] = h[3] = False  # a user and an item without edges
    g[:, 5] = h[:, 5] = False
    parts = [copy_pattern(csr_matrix(part)) for part in (g, h & ~g, g.T, (h & ~g).T)]
    q = RandomGraphPosterior(random_side(rng, M, factors, clamped), random_side(rng, N, factors), taus)
    return q, HiddenGraph(*parts), g.astype(float), h.astype(float)


def assert_close(side, expected):
    for name, array in expected.items():
        assert getattr(side, name) == pytest.approx(array, rel=2e-5, abs=2e-5), name


@pytest.mark.parametrize("factors", [1, 13, 14, 15, 20, 29, 46])
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("step", [1.0, 0.3])
def test_factor_updates_agree_with_equations_17_and_18(factors, joint, step):
    q, graph, g, h = random_case(factors)
    users, items = float_sides(q)
    xi = np.sqrt(dense_moments(users, items)[1])
    q.update_users(graph, step, joint=joint)
    assert_close(q.users, updated_factors(users, items, g, h, xi, (1.7, 0.6), step, joint))
    users, items = float_sides(q)
    xi = np.sqrt(dense_moments(users, items)[1])
    q.update_items(graph, step, joint=joint)
    assert_close(q.items, updated_factors(items, users, g.T, h.T, xi.T, (0.9, 2.1), step, joint))


@pytest.mark.parametrize("step", [1.0, 0.3])
def test_bias_updates_agree_with_equation_19(step):
    q, graph, g, h = random_case(20)
    users, items = float_sides(q)
    xi = np.sqrt(dense_moments(users, items)[1])
    q.update_user_biases(graph, step)
    assert_close(q.users, updated_biases(users, items, g, h, xi, 0.6, step))
    users, items = float_sides(q)
    xi = np.sqrt(dense_moments(users, items)[1])
    q.update_item_biases(graph, step)
    assert_close(q.items, updated_biases(items, users, g.T, h.T, xi.T, 2.1, step))


def test_precisions_agree_with_equation_20():
    q, _, _, _ = random_case(4)
    users, items = float_sides(q)
    old = q.taus.rate.copy()
    q.update_taus(0.25)
    squares = [
        np.sum(side[part + "mean"] ** 2 + 1 / side[part + "precision"])
        for side in (users, items)
        for part in ("", "bias_")
    ]
    assert q.taus.rate == pytest.approx(0.75 * old + 0.25 * (0.01 + np.array(squares) / 2))
    assert q.taus.shape == pytest.approx([0.01 + 60, 0.01 + 15, 0.01 + 40, 0.01 + 10])


BLOCKS = {  # update, side that it changes, what it changes there
    "user biases": (RandomGraphPosterior.update_user_biases, 0, ["bias_"]),
    "item biases": (RandomGraphPosterior.update_item_biases, 1, ["bias_"]),
    "users": (RandomGraphPosterior.update_users, 0, [""]),
    "items": (RandomGraphPosterior.update_items, 1, [""]),
    "users and biases": (partial(RandomGraphPosterior.update_users, joint=True), 0, ["", "bias_"]),
    "items and biases": (partial(RandomGraphPosterior.update_items, joint=True), 1, ["", "bias_"]),
}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_update_is_a_stationary_point_of_the_bound(block):
    q, graph, g, h = random_case(3)
    before = float_sides(q)
    xi = np.sqrt(dense_moments(*before)[1])  # the updates maximise for these, eq. 12
    update, side, parts = BLOCKS[block]
    update(q, graph, step=1.0)
    after = float_sides(q)
    value = dense_bound(*after, q.taus, g, h, xi)
    assert value > dense_bound(*before, q.taus, g, h, xi)
    for part in parts:
        places = [(0,), (7,), (12,)] if part else [(0, 0), (7, 1), (12, 2)]
        for name, place in itertools.product((part + "mean", part + "precision"), places):
            array = after[side][name]
            here, values = array[place], []
            for there in (here - 1e-3, here + 1e-3):
                array[place] = there
                values.append(dense_bound(*after, q.taus, g, h, xi))
            array[place] = here
            assert abs(values[1] - values[0]) / 2e-3 < 1e-4, (name, place)
            assert max(values) < value + 1e-9, (name, place)


@pytest.mark.parametrize("clamped", [True, False])
def test_the_bound_agrees_with_equation_12(clamped):
    q, graph, g, h = random_case(5, clamped=clamped)
    users, items = float_sides(q)
    xi = np.sqrt(dense_moments(users, items)[1])
    assert q.bound(graph) == pytest.approx(dense_bound(users, items, q.taus, g, h, xi), rel=1e-6)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("clamped", [False, True])
def test_on_a_fixed_graph_no_block_update_lowers_the_bound(joint, clamped):
    q, graph, _, _ = random_case(6, clamped=clamped, seed=4)
    if joint:
        names = ["users" if clamped else "users and biases", "items and biases"]
    else:
        names = ["item biases", "users", "items"] if clamped else ["user biases", "item biases", "users", "items"]
    last = first = q.bound(graph)
    for _ in range(15):
        for name in [*names, "taus"]:
            q.update_taus(1.0) if name == "taus" else BLOCKS[name][0](q, graph, step=1.0)
            value = q.bound(graph)
            assert value >= last - 2e-6 * abs(last), name
            last = value
    assert last > first + 50
