"""One user's best items without the scores of all, and sums over hubs, against rankings and products of everything."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass.models.graph_filter import pruning
from oneclass.models.graph_filter.graph import NormalizedGraph
from oneclass.models.graph_filter.hubs import NO_HUB, HubColumns
from oneclass.models.graph_filter.model import GraphFilter
from oneclass.models.graph_filter.pruning import LowPassTable, SecondWalk, select_best_items

ITEMS = 300


def log_of(seed: int, users: int = 80, items: int = ITEMS, likes: float = 0.5) -> csr_matrix:
    """A long tail; items 7 and 8 are liked by the same users, item 9 by nobody, and user 5 likes nothing."""
    draw = np.random.default_rng(seed)
    found = draw.random((users, items)) < likes / np.sqrt(np.arange(1, items + 1))
    found[:, 8], found[:, 9], found[5] = found[:, 7], False, False
    return csr_matrix(found * draw.integers(1, 4, found.shape).astype(float))


def rank_all(scores: np.ndarray, excluded: np.ndarray, n: int) -> tuple[list[int], list[float]]:
    """Every item in turn."""
    left = [item for item in range(len(scores)) if item not in set(excluded.tolist())]
    best = sorted(left, key=lambda item: (-scores[item], item))[:n]
    return best, [scores[item] for item in best]


@pytest.fixture
def never_formed(monkeypatch):
    monkeypatch.setattr("oneclass.models.graph_filter.model.CACHE_ENTRIES", 400)
    monkeypatch.setattr("oneclass.models.graph_filter.model.MAX_FILTER_ENTRIES", 0)


@pytest.mark.usefixtures("never_formed")
@pytest.mark.parametrize("few_users", [0, 10**6], ids=["walks to few users", "walks to all"])
@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"sharpening": 0.0},
        {"sharpening": 1.0, "low_pass": 0.0},
        {"low_pass": 3.0, "vectors": 40, "in_exponent": 0.9, "out_exponent": 0.2},
        {"use_weights": True, "low_pass": 0.5},
        {"sharpening": 0.5, "sharpening_terms": 2},
        {"polynomial": "plateau"},
    ],
    ids=str,
)
def test_the_best_items_of_a_user_are_those_of_all_scores(chosen, few_users, tmp_path, monkeypatch):
    """Ids and bits, whatever is left out; also where fewer items are left than asked for."""
    monkeypatch.setattr(pruning, "FIRST_ITEMS", 40)
    monkeypatch.setattr(pruning, "ITEMS_PER_STEP", 3)
    monkeypatch.setattr(pruning, "FEW_USERS", few_users)
    log = log_of(3)
    GraphFilter(**chosen).fit(log).save(tmp_path)
    model = GraphFilter.load(tmp_path)
    assert not len(model.weights)
    for user in range(0, 80, 3):
        history = log[[user]]
        scores = model.scores(history)[0]
        lists = (7, history.indices), (20, np.arange(0)), (60, np.arange(0, ITEMS, 2)), (250, history.indices)
        for n, excluded in lists:
            ids, best = model.best_items(history, n, excluded=(np.array([0, len(excluded)]), excluded))
            expected = rank_all(scores, excluded, n)
            found = np.count_nonzero(ids[0] >= 0)
            assert (ids[0][:found].tolist(), best[0][:found].tolist()) == expected
            assert ids.shape == (1, n) and (best[0][found:] == -np.inf).all()


@pytest.mark.usefixtures("never_formed")
def test_few_scores_are_computed(tmp_path, monkeypatch):
    asked: list[int] = []
    entries = SecondWalk.entries
    monkeypatch.setattr(SecondWalk, "entries", lambda walk, items: asked.append(len(items)) or entries(walk, items))
    log = log_of(4, items=3000)
    GraphFilter().fit(log).save(tmp_path)
    model = GraphFilter.load(tmp_path)
    model.recommend(log[:1], 10)
    computed = sum(asked)
    assert 20 <= computed < 600
    model.recommend(log[:2], 10)  # two users are ranked by all scores
    assert sum(asked) == computed


numbers = st.sampled_from([0.0, 0.0, 1.0, -1.0, 0.5, 1e-3, -0.25, 1e-20, 3e4])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_item_is_left_out_wrongly(data):
    """Of tables with ties, zeros and numbers of very different sizes; also where nothing is above zero."""
    items, k = data.draw(st.integers(1, 60)), data.draw(st.integers(0, 9))
    rows = np.array(data.draw(st.lists(numbers, min_size=items * k, max_size=items * k)), dtype=np.float32)
    walk = np.abs(np.array(data.draw(st.lists(numbers, min_size=items, max_size=items)), dtype=np.float32))
    low = np.array(data.draw(st.lists(numbers, min_size=k, max_size=k)), dtype=np.float32)
    shares = st.floats(0, 1) if data.draw(st.booleans()) else st.just(1.0)
    taken = np.array(data.draw(st.lists(shares, min_size=items, max_size=items)), dtype=np.float32)
    excluded = np.array(sorted(data.draw(st.sets(st.integers(0, items - 1)))), dtype=np.int32)
    n, table = data.draw(st.integers(1, 8)), LowPassTable.of(rows.reshape(items, k))
    products = table.times(low, np.arange(items))
    scores = walk * taken + products  # as after a second walk
    found = select_best_items(table, walk, low, lambda some, of_some: scores[some], excluded, n)
    if found is not None:
        assert (found[0].tolist(), found[1].tolist()) == rank_all(scores, excluded, n)
    elif (taken == 1).all():
        ranked = rank_all(scores, excluded, n)[1]
        assert len(ranked) < n or not min(ranked) > 0


@pytest.mark.parametrize("count", [0, 3, 40])
@pytest.mark.parametrize("sharpening", [0.0, 0.4])
def test_pair_sums_are_entries_of_the_square(count, sharpening):
    log = log_of(5, items=40)
    graph = NormalizedGraph.of(csr_matrix((log.data, log.indices, log.indptr), shape=log.shape), 0.4, 0.3)
    square = (graph.of_users.T @ graph.of_users).toarray().astype(np.float64)
    expected = square - sharpening * square @ square
    hubs = HubColumns.of(graph, sharpening, count)
    assert np.count_nonzero(hubs.positions != NO_HUB) == count
    for history, items in (([0, 3, 20, 39], [1, 2, 2, 9, 30]), ([25], list(range(40))), ([], [1])):
        history, items = np.array(history, dtype=np.int32), np.array(items, dtype=np.int32)
        found = hubs.pair_sums(history, items)
        np.testing.assert_allclose(found, expected[np.ix_(history, items)], rtol=1e-4, atol=1e-6 * expected.max())


def test_bounds_hold_for_users_along_what_rounding_drops():
    """The worst user of an item is the one whose numbers are the difference to its rounded numbers."""
    rows = np.random.default_rng(6).normal(size=(50, 12)).astype(np.float32)
    table, walk = LowPassTable.of(rows), np.zeros(50, dtype=np.float32)
    dropped = rows - table.scales[:, None] * table.codes[:, :12]
    assert 0.001 < np.linalg.norm(dropped) / np.linalg.norm(rows) < 0.01
    tables = table.codes, table.scales, table.lengths, table.errors
    for low in (*dropped, *rows):
        padded, bounds = np.zeros(table.codes.shape[1], dtype=np.float32), np.empty(50, dtype=np.float32)
        padded[:12] = low
        length, products = np.float32(np.linalg.norm(low)), rows.astype(np.float64) @ low
        pruning._bound_scores(*tables, walk, padded, length, np.float32(np.inf), bounds)  # by the lengths alone
        assert (bounds >= products).all()
        pruning._bound_scores(*tables, walk, padded, length, np.float32(-np.inf), bounds)
        assert (bounds >= products).all() and (bounds <= products + 0.1 * length).all()
