"""Best items by tiles, against a ranking of all scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass.models.negatives.like_probability import compute_scores, put_log_odds
from oneclass.models.negatives.tiled_log_odds import LogitBounds, LogitColumns, LogitRows, LogOddsScores
from oneclass.models.numerics import tiled_ranking
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.numerics.tiled_ranking import Balls, ItemTiles, LinearScores, find_ball
from oneclass.models.registry import MODELS
from tests.models.graph_filter.test_pruning import ITEMS, log_of, rank_all

TILED = ["popularity", "bpr_uniform", "wmf", "hpf", "binary_matrix", "random_graph", "paired_symbols"]
NOTHING = np.zeros(0, dtype=np.int32)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(tiled_ranking, "TILE_ITEMS", 16)
    monkeypatch.setattr(tiled_ranking, "FIRST_TILES", 2)
    monkeypatch.setattr(tiled_ranking, "GROUP_TILES", 5)
    monkeypatch.setattr("oneclass.models.tiled_scorer.MIN_TILED_ITEMS", 0)


@pytest.fixture(scope="module")
def log() -> csr_matrix:
    whole = log_of(3)
    return whole[np.diff(whole.indptr) > 0]


@pytest.fixture(scope="module", params=TILED)
def model(request, log, tmp_path_factory):
    folder, kind = tmp_path_factory.mktemp("fit"), MODELS[request.param]
    kind(seed=1).fit(log).save(folder)
    return kind.load(folder)


def exclusion_lists(lists: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum([0, *map(len, lists)]), np.concatenate(lists).astype(np.int32)


@pytest.mark.parametrize("most_of_few", [0.0, 1.0], ids=["a few users by all scores", "by tiles"])
def test_the_best_items_of_users_are_those_of_all_scores(model, log, most_of_few, monkeypatch):
    """Ids and bits, of new users and those of the training matrix, one by one and together."""
    monkeypatch.setattr(tiled_ranking, "MAX_SHARE_OF_FEW", most_of_few)
    for rows in (None, np.arange(log.shape[0], dtype=np.int32)):
        for score in model.score_names:
            scores = model.scores(log, users=rows, score=score)
            lists = (7, None), (20, NOTHING), (250, np.arange(0, ITEMS, 2)), (3, np.arange(2, ITEMS))
            for n, leave_out in lists if most_of_few else lists[:1]:
                of_users = [log[u].indices if leave_out is None else leave_out for u in range(log.shape[0])]
                expected = [rank_all(scores[u], of_users[u], n) for u in range(log.shape[0])]
                blocks = [np.array([0]), np.arange(2, 5), np.arange(log.shape[0])]
                for block in blocks:
                    excluded = exclusion_lists([of_users[u] for u in block])
                    of_block = None if rows is None else rows[block]
                    ids, best = model.best_items(log[block], n, users=of_block, score=score, excluded=excluded)
                    assert ids.shape == best.shape == (len(block), n)
                    for place, user in enumerate(block):
                        found = np.count_nonzero(ids[place] >= 0)
                        assert (ids[place][:found].tolist(), best[place][:found].tolist()) == expected[user]
                        assert (best[place][found:] == -np.inf).all()


def test_some_items_have_the_scores_of_all(model, log):
    items = np.array([250, 3, 3, 9, 77])
    for score in model.score_names:
        for rows in (None, np.arange(log.shape[0], dtype=np.int32)):
            whole = model.scores(log, users=rows, score=score)
            np.testing.assert_array_equal(model.scores(log, users=rows, score=score, items=items), whole[:, items])
    np.testing.assert_array_equal(model.scores(log, items=np.arange(ITEMS) > 290), model.scores(log)[:, 291:])


def test_a_history_without_a_known_item_is_ranked_by_popularity(model, log):
    histories = csr_matrix(([1.0], ([0], [1])), shape=(2, ITEMS))
    ids, _ = model.best_items(histories, 5, excluded=(np.zeros(3, dtype=np.int64), NOTHING))
    degrees = np.asarray((log > 0).sum(axis=0)).ravel()
    assert ids[1].tolist() == np.argsort(-degrees, kind="stable")[:5].tolist()


class Counted(LinearScores):
    """Counts the pairs that are scored."""

    pairs = 0

    def score(self, users, items):
        type(self).pairs += len(users) * len(items)
        return super().score(users, items)


def test_few_pairs_are_scored():
    """Long factors are those of popular items, so few tiles reach the best of the first."""
    draw = np.random.default_rng(2)
    items, users = 3000, 50
    factors = (draw.normal(size=(items, 8)) / np.sqrt(np.arange(1, items + 1))[:, None]).astype(np.float32)
    tiles, Counted.pairs = ItemTiles.of(np.arange(items, 0, -1)), 0
    balls = Balls.of(find_ball(factors[of].T) for of in tiles)
    rows = draw.normal(size=(users, 8)).astype(np.float32)
    scores = Counted(tiles, rows, lambda some: factors[some].T, lambda: balls)
    found = tiled_ranking.rank_tiles(scores, *exclusion_lists([NOTHING] * users), 10)
    assert found is not None
    assert found[0].tolist() == [rank_all(row, NOTHING, 10)[0] for row in dense_times(rows, factors.T.copy())]
    assert Counted.pairs < 0.2 * items * users


numbers = st.sampled_from([0.0, 0.0, 1.0, -1.0, 0.5, 1e-3, -0.25, 1e-20, 3e4, -7.0])
variances = st.sampled_from([0.0, 1e-6, 0.3, 1.0, 40.0, 1e4])


def lists_table(data, of, *shape: int) -> np.ndarray:
    count = int(np.prod(shape))
    return np.array(data.draw(st.lists(of, min_size=count, max_size=count)), dtype=np.float32).reshape(shape)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_item_is_left_out_wrongly(data):
    """Of tables with ties, zeros and numbers of very different sizes: every bound holds, and lists are whole."""
    items, users, k, n = (data.draw(st.integers(1, most)) for most in (50, 4, 6, 8))
    tiles = ItemTiles.of(lists_table(data, st.integers(0, 3), items).astype(np.int64))
    rows, columns = lists_table(data, numbers, users, k), lists_table(data, numbers, k, items)
    name = data.draw(st.sampled_from(["linear", "like", "popularity_x_like", "popularity_x_odds"]))
    if name == "linear":
        constant = data.draw(numbers)
        balls = Balls.of(find_ball(columns[:, of]) for of in tiles)
        scores = LinearScores(tiles, rows, lambda some: columns[:, some], lambda: balls, constant)
        whole = dense_times(rows, columns) + np.float32(constant)
    else:
        of_users = LogitRows(
            rows,
            lists_table(data, variances, users, k),
            lists_table(data, numbers, users),
            lists_table(data, variances, users),
        )
        of_items = LogitColumns(
            columns,
            lists_table(data, variances, k, items),
            lists_table(data, numbers, items),
            lists_table(data, variances, items),
        )
        popularity = lists_table(data, variances, items)
        names = popularity, np.log(popularity + np.float32(0.1))

        def columns_of(some: np.ndarray) -> LogitColumns:
            return LogitColumns(*(np.ascontiguousarray(part[..., some]) for part in of_items))

        of_tiles = LogitBounds.of(tiles, columns_of, names)
        scores = LogOddsScores(tiles, columns_of, name, of_users, names, lambda: of_tiles, 1)
        products = dense_times(rows, columns), dense_times(of_users.variances, of_items.variances)
        logits = put_log_odds(*products, of_users[2:], of_items[2:])
        whole = next(compute_scores(logits, (name,), *names, 1))
    bounds = scores.bound()
    for tile, of in enumerate(tiles):
        assert (whole[:, of] <= bounds[:, [tile]]).all()
    left_out = [np.array(sorted(data.draw(st.sets(st.integers(0, items - 1)))), dtype=np.int32) for _ in range(users)]
    found = tiled_ranking.rank_tiles(scores, *exclusion_lists(left_out), n)
    if found is not None:
        for user in range(users):
            length = np.count_nonzero(found[0][user] >= 0)
            assert (found[0][user][:length].tolist(), found[1][user][:length].tolist()) == rank_all(
                whole[user], left_out[user], n
            )
