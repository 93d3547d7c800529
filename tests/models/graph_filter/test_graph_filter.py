"""The three filters against dense float64 formulas, written from the papers; and degenerate graphs."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.graph_filter.graph import NormalizedGraph, top_eigenvectors
from oneclass.models.graph_filter.model import GraphFilter, GraphFilterSettings

PAPERS = {"user_exponent": 1.0, "in_exponent": 0.5, "out_exponent": 0.5}  # R~ = D_u^-1/2 R D_i^-1/2


@pytest.fixture(autouse=True, scope="module")
def iterate_to_the_end():
    """Make so many passes of the subspace iteration that only rounding is left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.models.graph_filter.model.PASSES", 60)
        yield


@pytest.fixture(params=["formed by S", "formed by walks", "never formed"])
def formed(request, monkeypatch):
    """Whether the fit makes the filter, as it does where items are few, and by what."""
    if request.param == "never formed":
        never_form(monkeypatch)
    elif request.param == "formed by walks":
        monkeypatch.setattr("oneclass.models.graph_filter.model.WALK", 0)


def never_form(monkeypatch):
    for bound in ("SMALL_FILTER", "MAX_FILTER"):
        monkeypatch.setattr(f"oneclass.models.graph_filter.model.{bound}", 0)


@pytest.fixture(scope="module")
def likes():
    """60 users x 40 items, a long tail; item 7 has no user, user 5 likes nothing."""
    rng = np.random.default_rng(4)
    found = rng.random((60, 40)) < 0.5 / np.sqrt(np.arange(1, 41))
    found[:, 7], found[5] = False, False
    return found.astype(np.float64)


def fit_model(likes, **chosen):
    return GraphFilter(GraphFilterSettings(**{**PAPERS, "low_pass": 0.0, "sharpening": 0.0, **chosen})).fit(
        csr_matrix(likes)
    )


def degree_power(degrees, exponent):
    """diag(degree^exponent), with zeros where the degree is zero."""
    return np.diag([degree**exponent if degree else 0.0 for degree in degrees])


def top_vectors(matrix, count):
    """V V' of the top right singular vectors."""
    rows = np.linalg.svd(matrix)[2][:count]
    return rows.T @ rows


def assert_agrees(model, likes, expected):
    """Scores of every user with a history, but for items that no evidence reaches."""
    asked = likes.sum(axis=1) > 0
    scores, expected = model.scores(csr_matrix(likes))[asked], expected[asked]
    said = np.abs(expected) > 1e-12
    assert said.mean() > 0.9
    np.testing.assert_allclose(scores[said], expected[said], rtol=2e-4, atol=2e-6 * np.abs(expected).max())


@pytest.mark.usefixtures("formed")
@pytest.mark.parametrize("du, into, out", [(0.7, 0.7, 0.2), (1.0, 0.5, 0.5), (1.3, 0.0, 1.0)])
def test_linear_filter_is_the_sum_over_paths(likes, du, into, out):
    """s_ui = d_i^-out sum_v R_vi d_v^-du sum_(j in history) R_vj d_j^-in."""
    of_users, of_items = likes.sum(axis=1), likes.sum(axis=0)
    expected = np.zeros_like(likes)
    for user, item in np.ndindex(*likes.shape):
        for other in np.flatnonzero(likes[:, item]):
            shared = np.flatnonzero(likes[user] * likes[other])
            path = sum(of_items[liked] ** -into for liked in shared)
            expected[user, item] += of_items[item] ** -out * of_users[other] ** -du * path
    assert_agrees(fit_model(likes, user_exponent=du, in_exponent=into, out_exponent=out), likes, expected)


@pytest.mark.usefixtures("formed")
def test_bspm_sharpens_what_is_blurred(likes):
    """Choi et al. 2023, early merge: a step of dz/dt = -z R~'R~ by Euler from z = x R~'R~ + the low-pass."""
    degrees = likes.sum(axis=0)
    r = degree_power(likes.sum(axis=1), -0.5) @ likes @ degree_power(degrees, -0.5)  # D_u^-1/2 R D_i^-1/2
    low = degree_power(degrees, -0.5) @ top_vectors(r, 5) @ degree_power(degrees, 0.5)
    blurred = likes @ r.T @ r + 0.2 * likes @ low
    model = fit_model(likes, low_pass=0.2, vectors=5, low_pass_exponent=0.5, sharpening=2.5)
    assert_agrees(model, likes, blurred - 2.5 * blurred @ r.T @ r)


@pytest.mark.usefixtures("formed")
def test_other_exponents_divide_by_the_largest_eigenvalue(likes):
    """So that alpha and h mean the same as where it is 1."""
    of_users, of_items = degree_power(likes.sum(axis=1), -0.3), degree_power(likes.sum(axis=0), -0.4)
    w = of_users @ likes @ of_items
    largest = np.linalg.norm(w, 2) ** 2
    assert not 0.9 < largest < 1.1
    into, out = degree_power(likes.sum(axis=0), -0.25), degree_power(likes.sum(axis=0), 0.25)  # delta = (.65 - .15) / 2
    low = degree_power(likes.sum(axis=0), -0.1) @ top_vectors(w, 4) @ degree_power(likes.sum(axis=0), 0.1)
    blur = into @ w.T @ w @ out / largest
    expected = (likes @ blur + 0.5 * likes @ low) @ (np.eye(40) - 0.8 * blur)
    model = fit_model(
        likes, user_exponent=0.6, in_exponent=0.65, out_exponent=0.15, low_pass=0.5, vectors=4, low_pass_exponent=0.1,
        sharpening=0.8,
    )  # fmt: skip
    assert_agrees(model, likes, expected)
    assert model.eigenvalue == pytest.approx(largest, rel=1e-5)


@pytest.mark.usefixtures("formed")
def test_items_that_no_path_reaches_follow_by_popularity():
    """Two components: of the other one nothing is known, and its items come last, the more popular first."""
    likes = np.zeros((9, 7))
    likes[:4, :3] = 1
    likes[0, 2] = 0
    likes[4:, 3], likes[4:7, 4], likes[4, 5] = 1, 1, 1
    model = fit_model(likes)
    scores = model.scores(csr_matrix(likes[[0]]))[0]
    assert np.argsort(-scores, kind="stable")[:3].tolist() == [0, 1, 2]
    assert np.argsort(-scores, kind="stable")[3:].tolist() == [3, 4, 5, 6]
    assert (scores[:3] > 0).all() and (scores[3:] < 0).all() and len(set(scores[3:].tolist())) == 4


@pytest.mark.usefixtures("formed")
@pytest.mark.parametrize("settings", [{"sharpening": 1.0}, {"sharpening": 0.4}, {"low_pass": 0.0}])
@pytest.mark.parametrize("asked", [[3], [7, 2, 2], list(range(40))])
def test_contributions_are_the_columns_of_the_filter(likes, settings, asked):
    """Each item of the history scored by itself, as a history of its own; of items that nobody likes too."""
    likes = likes * (1 + np.arange(40) % 3)
    model = fit_model(likes, **{"low_pass": 0.3, "vectors": 6, "in_exponent": 0.8, "out_exponent": 0.1, **settings})
    for liked in (likes[[3]], np.zeros((1, 40)), 1.0 * likes.any(axis=0, keepdims=True)):
        history = csr_matrix(liked)
        alone = csr_matrix((history.data, history.indices, np.arange(history.nnz + 1)), shape=(history.nnz, 40))
        found, expected = model.contributions(history, np.array(asked)), model.scores(alone)[:, asked]
        reached = found != 0  # the others are ranked by popularity
        assert (reached.any() or not history.nnz) and (expected[~reached] < 0).all()
        np.testing.assert_allclose(found[reached], expected[reached], rtol=1e-4, atol=1e-6)
        assert found.shape == (history.nnz, len(asked)) and found.dtype == np.float32


SOME_USERS = [(0, 1), (1, 1), (2, 18), (20, 40)]


@pytest.mark.parametrize("sharpening", [0.0, 0.4])
def test_users_of_a_large_catalogue_have_the_same_bits_together_and_alone(likes, sharpening, monkeypatch):
    never_form(monkeypatch)
    monkeypatch.setattr("oneclass.models.graph_filter.model.TURNED", 32)
    likes = np.hstack([likes, likes[:, ::-1]])  # of more items than a tile
    model, histories = fit_model(likes, sharpening=sharpening, low_pass=0.5, vectors=6), csr_matrix(likes)
    together = model.scores(histories)
    apart = [model.scores(histories[first : first + size]) for first, size in SOME_USERS]
    np.testing.assert_array_equal(together, np.vstack(apart))


@pytest.mark.parametrize("count, expected", [(25, (20, 1.0, 0.1, 0.4)), (5, (4, 1.0, 0.4, 0.0))])
def test_what_is_left_to_the_log_follows_from_a_mean_users_likes(count, expected):
    likes = np.append(np.tile(np.arange(100) < count, (60, 1)), np.zeros((1, 100)), axis=0)  # a user without any
    found = GraphFilterSettings().resolve(csr_matrix(likes))
    assert (found.vectors, found.low_pass, found.low_pass_exponent, found.sharpening) == expected


def graph_of(likes):
    return NormalizedGraph.of(csr_matrix(likes), 0.5, 0.5)


def project_onto(vectors):
    return vectors.astype(np.float64) @ vectors.T


@pytest.fixture(scope="module")
def clustered():
    """400 users x 300 items in ten groups of their own, and a few likes elsewhere: ten values above the others."""
    rng = np.random.default_rng(8)
    own = np.arange(400)[:, None] % 10 == np.arange(300) % 10
    return (rng.random((400, 300)) < np.where(own, 0.4, 0.005)).astype(np.float64)


def test_top_vectors_are_those_of_lapack(clustered):
    graph = graph_of(clustered)
    dense = graph.of_users.toarray().astype(np.float64)
    _, singular, rows = np.linalg.svd(dense)
    values, vectors = top_eigenvectors(graph, (400, 300), 10, 8, seed=1)
    assert vectors.dtype == np.float32 and vectors.shape == (300, 10)
    np.testing.assert_allclose(values, singular[:10] ** 2, rtol=1e-5)
    np.testing.assert_allclose(project_onto(vectors), rows[:10].T @ rows[:10], atol=2e-5)


@pytest.mark.parametrize("rank", [1, 3])
def test_directions_of_no_value_are_left_out(rank):
    likes = np.kron(np.eye(rank), np.ones((6, 5)))
    values, vectors = top_eigenvectors(graph_of(likes), likes.shape, 12, 4, seed=0)
    np.testing.assert_allclose(values, np.ones(rank), rtol=1e-6)
    np.testing.assert_allclose(project_onto(vectors), np.kron(np.eye(rank), np.full((5, 5), 0.2)), atol=1e-6)
