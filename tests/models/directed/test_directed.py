"""The directed models against their equations, with a row of S and T for every like, and on chains of items."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.directed.pairs import WINDOW
from oneclass.models.directed.slist import SLIST
from oneclass.models.directed.transitions import Transitions
from oneclass.models.numerics.sequential_histories import with_recency_ranks
from oneclass.models.registry import MODELS


def draw_histories(seed, users=40, items=70):
    """Histories, the first longer than the window, one empty, with likes of one time."""
    generator = np.random.default_rng(seed)
    likes = generator.random((users, items)) < generator.random((users, 1)) / 2
    likes[0], likes[1] = True, False
    matrix = csr_matrix(likes.astype(np.float32))
    return with_recency_ranks(matrix, generator.integers(0, 60, matrix.nnz))


def list_steps(history):
    """The items of each step of a history, the oldest first, of its newest likes."""
    order = sorted(range(history.nnz), key=lambda at: -history.recency_ranks[at])[-WINDOW:]
    ranks = sorted({history.recency_ranks[at] for at in order}, reverse=True)
    return [[history.indices[at] for at in order if history.recency_ranks[at] == rank] for rank in ranks]


def write_rows(histories, tau):
    """S and T, with a row for each like but those of a first step."""
    sources, targets = [np.zeros((0, histories.shape[1]))] * 2
    for row in range(histories.shape[0]):
        steps = list_steps(histories[row])
        for step in range(1, len(steps)):
            source = np.zeros(histories.shape[1])
            for earlier in range(step):
                source[steps[earlier]] = np.exp(-(step - 1 - earlier) / tau)
            for item in steps[step]:
                sources = np.vstack([sources, source])
                targets = np.vstack([targets, np.arange(len(source)) == item])
    return sources, targets


@pytest.mark.parametrize("mixing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("tau", [0.7, 4.0])
def test_slist_is_the_ridge_regression_of_each_item_on_the_others(mixing, tau):
    histories = draw_histories(1)
    whole, (source, target) = (histories.toarray() > 0).astype(float), write_rows(histories, tau)
    gram = mixing * whole.T @ whole + (1 - mixing) * source.T @ source
    wanted = mixing * whole.T @ whole + (1 - mixing) * source.T @ target
    model = SLIST(mixing=mixing, tau=tau, l2=7.0).fit(histories)
    for item in range(0, len(gram), 9):
        others = np.delete(np.arange(len(gram)), item)
        weights = np.linalg.solve(gram[np.ix_(others, others)] + 7 * np.eye(len(others)), wanted[others, item])
        np.testing.assert_allclose(model.weights[others, item], weights, rtol=1e-3, atol=1e-5)
    assert (model.weights.diagonal() == 0).all()


def test_transitions_are_the_sums_divided_by_popularity(monkeypatch):
    histories = draw_histories(3)
    source, target = write_rows(histories, 3.0)
    degrees = histories.getnnz(axis=0)
    expected = source.T @ target / np.outer(degrees**0.5, degrees**0.3)
    found = Transitions().fit(histories).weights.toarray()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    monkeypatch.setattr("oneclass.models.directed.transitions.MAX_SUCCESSORS", 6)
    monkeypatch.setattr("oneclass.models.item_weights.MAX_CHUNK_ENTRIES", 60)
    kept = Transitions().fit(histories).weights.toarray()
    place = np.argsort(np.argsort(-found, axis=1, kind="stable"), axis=1)
    np.testing.assert_array_equal(kept, np.where(place < 6, found, 0))


@pytest.mark.parametrize("name", ["slist", "transitions"])
def test_what_comes_next_is_told_from_what_came_before(name):
    """Each user walks along a ring of items from a place of their own; a symmetric model cannot tell the directions."""
    ring, walk = 20, 6
    starts = np.arange(200) % ring
    items = (starts[:, None] + np.arange(walk)) % ring
    matrix = csr_matrix((np.ones(items.size), (np.repeat(np.arange(200), walk), items.ravel())), shape=(200, ring))
    matrix.sort_indices()
    places = (matrix.indices - np.repeat(starts, walk)) % ring
    histories = with_recency_ranks(matrix, walk - 1 - places)
    ids, _ = MODELS[name]().fit(histories).recommend(histories, 1)
    np.testing.assert_array_equal(ids[:, 0], (starts + walk) % ring)


@pytest.mark.parametrize("name", ["slist", "transitions"])
def test_a_log_without_an_order_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"^{name} learns from the order of likes"):
        MODELS[name]().fit(csr_matrix(draw_histories(4)))
