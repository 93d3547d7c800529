"""The normalised graph and its singular vectors: against LAPACK, by seed, by threads, and where the rank is low."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.graph_filter.graph import DenseSquare, NormalizedGraph, degree_powers, top_eigenvectors
from oneclass.models.graph_filter.model import GraphFilter
from oneclass.models.graph_filter.settings import GraphFilterSettings


def graph_of(likes):
    return NormalizedGraph.of(csr_matrix(likes), 0.5, 0.5)


def projection(vectors):
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
    values, vectors = top_eigenvectors(graph, 10, 16, 8, seed=1)
    assert vectors.dtype == np.float32 and vectors.shape == (300, 10)
    np.testing.assert_allclose(values, singular[:10] ** 2, rtol=1e-5)
    np.testing.assert_allclose(projection(vectors), rows[:10].T @ rows[:10], atol=2e-5)


def test_more_passes_come_closer(clustered):
    graph = graph_of(clustered)
    rows = np.linalg.svd(graph.of_users.toarray().astype(np.float64))[2][:40]
    far = [
        np.linalg.norm(projection(top_eigenvectors(graph, 40, 16, passes, 1)[1]) - rows.T @ rows)
        for passes in (2, 6, 18)
    ]
    assert far[0] > 1.3 * far[1] > 1.3 * far[2]


def test_the_start_is_drawn_by_the_seed(clustered):
    graph = graph_of(clustered)
    one, again, other = (top_eigenvectors(graph, 40, 16, 3, seed)[1] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert np.abs(projection(one) - projection(other)).max() > 1e-3


@pytest.mark.parametrize("rank", [1, 3])
def test_directions_of_no_value_are_left_out(rank):
    likes = np.kron(np.eye(rank), np.ones((6, 5)))
    values, vectors = top_eigenvectors(graph_of(likes), 12, 16, 4, seed=0)
    np.testing.assert_allclose(values, np.ones(rank), rtol=1e-6)
    np.testing.assert_allclose(projection(vectors), np.kron(np.eye(rank), np.full((5, 5), 0.2)), atol=1e-6)


def test_the_formed_square_is_that_of_the_graph(clustered, monkeypatch):
    """Of blocks, and of columns with one number, which are its columns; some rows of it at a time."""
    monkeypatch.setattr("oneclass.models.graph_filter.graph.WIDE", 64)
    clustered = clustered.copy()
    clustered[3], clustered[:, 8] = 0, 0
    dense = NormalizedGraph.of(csr_matrix(clustered), 0.35, 0.4).of_users.toarray().astype(np.float64)
    square = DenseSquare.of(csr_matrix(clustered), 0.35, 0.4, threads=2)
    assert square.shape == (400, 300)
    np.testing.assert_allclose(square.matrix, dense.T @ dense, rtol=2e-6, atol=1e-9)
    block, one_each = np.random.default_rng(2).normal(size=(300, 7)).astype(np.float32), np.zeros((300, 3), np.float32)
    one_each[[8, 2, 299], [0, 1, 2]] = 0.5, 2, -1
    for z in (block, one_each, one_each[:, [2, 2]], block[:, :1]):
        np.testing.assert_allclose(square.multiply(z), dense.T @ (dense @ z), rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(square.over(4.0).multiply(block), dense.T @ (dense @ block) / 4, rtol=2e-5, atol=2e-6)


def test_vertices_without_an_edge_have_no_power():
    np.testing.assert_allclose(degree_powers(np.array([0, 1, 4]), -0.5), [0, 1, 0.5])
    likes = np.array([[1, 0, 1], [0, 0, 0]])
    np.testing.assert_allclose(graph_of(likes).of_users.toarray(), [[2**-0.5, 0, 2**-0.5], [0, 0, 0]], rtol=1e-6)


@pytest.mark.parametrize("polynomial", ["linear", "plateau"])
@pytest.mark.parametrize("formed", [True, False])
def test_blocks_of_users_dealt_to_threads_have_the_same_bits(clustered, polynomial, formed, monkeypatch):
    monkeypatch.setattr("oneclass.models.graph_filter.graph.WIDE", 64)
    if not formed:
        monkeypatch.setattr("oneclass.models.graph_filter.model.forms_filter", lambda items, edges: False)
    settings = GraphFilterSettings(polynomial=polynomial, low_pass=0.3, vectors=12, sharpening=1.0)
    one, three = (GraphFilter(settings, seed=1, threads=threads).fit(csr_matrix(clustered)) for threads in (1, 3))
    np.testing.assert_array_equal(one.vectors, three.vectors)
    np.testing.assert_array_equal(one.scores(csr_matrix(clustered)), three.scores(csr_matrix(clustered)))
