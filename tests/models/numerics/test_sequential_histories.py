"""The order of histories: what keeps it, weights by it, and models that weigh by it, by dense formulas."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.blend import Blend, BlendSettings
from oneclass.models.blend.model import normalize_scores
from oneclass.models.numerics.column_moments import exact_degree_weights, weight_quantum
from oneclass.models.numerics.sequential_histories import (
    EventAges,
    SequentialHistories,
    drop_unknown_entries,
    recency_weights,
    select_ranks,
    single_item_histories,
    with_event_ages,
    with_recency_ranks,
)
from oneclass.models.registry import MODELS


def draw_histories(seed, users=30, items=40):
    """Histories, some of them empty, and {(user, item): place}; places have gaps, and some are equal."""
    generator = np.random.default_rng(seed)
    likes = generator.random((users, items)) < generator.random((users, 1))
    likes[3] = False
    histories = csr_matrix(likes.astype(np.float32))
    places = generator.integers(2 * items, size=histories.nnz)
    return with_recency_ranks(histories, places.astype(np.int32)), by_pair(histories, places)


def by_pair(histories, values):
    users = np.repeat(np.arange(histories.shape[0]), np.diff(histories.indptr))
    return dict(zip(zip(users.tolist(), histories.indices.tolist(), strict=True), values.tolist(), strict=True))


@pytest.mark.parametrize(
    "key", [slice(4, 20), slice(None), [0, 29, 3, 7], np.array([5]), 6, (slice(None), [1, 4, 39]), slice(9, 9)]
)
def test_rows_and_columns_that_are_taken_keep_their_places(key):
    histories, places = draw_histories(1)
    numbered = csr_matrix((np.arange(histories.nnz) + 1, histories.indices, histories.indptr), shape=histories.shape)
    found, entries = histories[key], numbered[key].data - 1
    assert isinstance(found, SequentialHistories)
    np.testing.assert_array_equal(found.recency_ranks, histories.recency_ranks[entries])
    assert by_pair(histories, histories.recency_ranks) == places


def test_no_order_is_made_up():
    histories, _ = draw_histories(2)
    for other in (histories.astype(np.float64), histories + histories, csr_matrix(histories.toarray())):
        with pytest.raises(ValueError, match="recency_exponent = 0.5 weighs likes by their order"):
            recency_weights(other, 0.5)
        assert (recency_weights(other, 0) == 1).all()
    with pytest.raises(ValueError, match="recency ranks of 3 entries but"):
        with_recency_ranks(histories, np.arange(3))
    assert with_recency_ranks(histories, None) is histories


@pytest.mark.parametrize("exponent", [0.3, 1.0, 4.0])
def test_weights_are_as_written(exponent):
    histories, places = draw_histories(3)
    found = by_pair(histories, recency_weights(histories, exponent))
    for (user, item), weight in found.items():
        newer = sum(places[pair] < places[user, item] for pair in places if pair[0] == user)
        assert weight == pytest.approx((1 + newer) ** -exponent, rel=1e-6)


@pytest.mark.filterwarnings("ignore:.*no training user has")
def test_items_without_training_users_are_not_counted():
    histories, places = draw_histories(4)
    trained = np.arange(40) % 3 > 0
    known = drop_unknown_entries(histories, trained, "mrf_dense")
    assert known.shape == (30, 40)
    left = {pair: place for pair, place in places.items() if trained[pair[1]]}
    assert by_pair(known, known.recency_ranks) == left


@pytest.mark.parametrize("exponent", [0.0, 0.3, 1.0, 2.0])
def test_weights_of_users_are_multiples_of_a_power_of_two_so_that_sums_are_exact_in_any_order(exponent):
    degrees = np.array([3, 0, 1, 40, 7, 0, 7])
    weights, step = exact_degree_weights(degrees, exponent), weight_quantum(degrees, exponent)
    assert (weights / step == np.rint(weights / step)).all() and np.frexp(step)[0] == 0.5
    assert 2**51 <= weights.sum() / step <= 2**52 + len(degrees)
    expected = [float(degree) ** -exponent if degree else 0.0 for degree in degrees]
    np.testing.assert_allclose(weights, expected, rtol=0, atol=step / 2)


def test_indexing_and_dropping_items_keep_the_ages_of_events():
    generator = np.random.default_rng(8)
    histories = csr_matrix((generator.random((9, 7)) < 0.5).astype(np.float32))
    own = [
        np.sort(generator.integers(50, size=generator.integers(1, 4))).astype(np.int32) for _ in range(histories.nnz)
    ]
    starts = np.concatenate([[0], np.cumsum([len(days) for days in own])])
    aged = with_event_ages(histories, EventAges(starts, np.concatenate(own)))
    by_edge = {edge: days.tolist() for edge, days in zip(zip(*histories.nonzero(), strict=True), own, strict=True)}

    def edges_of(found, rows, columns):
        ages = found.event_ages
        return {
            (rows[row], columns[column]): ages.days[ages.starts[entry] : ages.starts[entry + 1]].tolist()
            for entry, (row, column) in enumerate(zip(*found.nonzero(), strict=True))
        }

    columns = [0, 2, 5, 6]
    left = {edge: days for edge, days in by_edge.items() if edge[1] in columns}
    with pytest.warns(UserWarning, match="ignored"):
        known = drop_unknown_entries(aged, np.isin(np.arange(7), columns), "toy")
    assert edges_of(known, range(9), range(7)) == left
    rows = [6, 2, 3]
    assert edges_of(aged[rows][:, columns], rows, columns) == {edge: left[edge] for edge in left if edge[0] in rows}
    ranked = with_recency_ranks(aged, np.arange(aged.nnz))[3:]
    assert ranked.event_ages.days.tolist() == aged[3:].event_ages.days.tolist() and len(ranked.recency_ranks)
    with pytest.raises(ValueError, match="event ages of 2 entries"):
        with_event_ages(histories, EventAges(np.arange(3), np.arange(2)))


@pytest.mark.parametrize("seed", range(5))
def test_selected_entries_are_ranked_as_if_sorted_anew(seed):
    generator = np.random.default_rng(seed)
    count, lengths = 30, generator.integers(0, 25, 12)
    all_items = [generator.permutation(count)[:length] for length in lengths]
    all_ranks = [generator.permutation(length) for length in lengths]
    item_of_column = generator.permutation(count)
    column_of_item = np.argsort(item_of_column)
    rows = np.sort(generator.permutation(len(lengths))[:9])
    selected = [generator.permutation(lengths[row])[: generator.integers(0, lengths[row] + 1)] for row in rows]
    expected = [np.argsort(np.argsort(all_ranks[row][entries])) for row, entries in zip(rows, selected, strict=True)]
    found = select_ranks(
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate(all_items).astype(np.int32),
        np.concatenate(all_ranks).astype(np.int32),
        rows,
        np.concatenate([[0], np.cumsum([len(entries) for entries in selected])]),
        np.concatenate([column_of_item[all_items[row][entries]] for row, entries in zip(rows, selected, strict=True)]),
        item_of_column,
        count,
    )
    assert found.dtype == np.int32 and found.tolist() == np.concatenate(expected).tolist()


FITTED = {
    "mrf_dense": {"l2": 20.0},
    "mrf_dense, intercept": {"l2": 20.0, "intercept": True},
    "mrf_sparse": {"l2": 20.0, "density": 0.3},
    "slim": {"l1": 0.5, "l2": 5.0},
    "graph_filter": {"vectors": 6},
}


def fit_weighing(name, matrix, **more):
    kind = MODELS[name.partition(",")[0]]
    return kind(kind.Settings(**{**FITTED[name], **more}), seed=2, threads=2).fit(matrix)


def shuffle_histories(matrix, seed):
    """The histories with a drawn order, and the order as a dense array of places, -1 where there is no like."""
    generator = np.random.default_rng(seed)
    places = np.concatenate([generator.permutation(length) for length in np.diff(matrix.indptr)])
    dense = np.full(matrix.shape, -1)
    dense[np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)), matrix.indices] = places
    return with_recency_ranks(matrix, places), dense


def between_items(model):
    """float64 (items, items): what an item of the history adds to each score, by the scores of histories of one
    item.
    """
    if hasattr(model, "weights"):
        weights = model.weights if isinstance(model.weights, np.ndarray) else model.weights.toarray()
        return weights.astype(np.float64)
    return model.scores(single_item_histories(np.arange(model.item_count), model.item_count)).astype(np.float64)


@pytest.mark.parametrize("name", FITTED)
def test_scores_and_reasons_are_the_weighted_sums(name, long_tailed):
    histories, places = shuffle_histories(long_tailed[:40], 1)
    plain, weighing = fit_weighing(name, long_tailed), fit_weighing(name, long_tailed, recency_exponent=0.6)
    by_place = np.where(places >= 0, (1.0 + np.maximum(places, 0)) ** -0.6, 0)
    sums = by_place @ between_items(plain)
    expected, found = sums + getattr(plain, "offset", 0.0), weighing.scores(histories)
    spoken_for = sums != 0  # the others are placed by popularity
    assert spoken_for.mean() > 0.7
    np.testing.assert_allclose(found[spoken_for], expected[spoken_for], rtol=2e-4, atol=2e-5)
    assert np.abs(found - plain.scores(histories))[spoken_for].max() > 0.01
    for row in (0, 17):
        items = np.flatnonzero(spoken_for[row])[:9]
        added = weighing.contributions(histories[[row]], items)
        offset = getattr(plain, "offset", np.zeros(plain.item_count))[items]
        np.testing.assert_allclose(added.sum(axis=0) + offset, found[row, items], rtol=2e-4, atol=2e-5)
        assert found[row].tobytes() == weighing.scores(histories[[row]])[0].tobytes()


def test_members_of_a_blend_weigh_each_by_its_own_exponent(long_tailed, tmp_path):
    components = [
        {"model": "mrf_dense", "settings": FITTED["mrf_dense"] | {"recency_exponent": 0.6}},
        {"model": "slim", "weight": 0.5, "settings": FITTED["slim"]},
    ]
    settings = BlendSettings(components=components)
    assert settings.reads_order and not BlendSettings().reads_order
    Blend(settings, seed=2).fit(long_tailed).save(tmp_path)
    model = Blend.load(tmp_path)
    histories, _ = shuffle_histories(long_tailed[:20], 4)
    other, _ = shuffle_histories(long_tailed[:20], 5)
    parts = [
        normalize_scores(fit_weighing(name, long_tailed, recency_exponent=exponent).scores(histories), histories)
        for name, exponent in (("mrf_dense", 0.6), ("slim", 0.0))
    ]
    found = model.scores(histories)
    np.testing.assert_allclose(found, parts[0] + 0.5 * parts[1], rtol=1e-4, atol=1e-4)
    assert np.abs(found - model.scores(other)).max() > 0.01
    # The unit of a block is kept from its scores to its reasons: another order of the same items is another block.
    reasons = [model.contributions(one[[0]], np.arange(5)) for one in (histories, other)]
    fresh = Blend.load(tmp_path)
    np.testing.assert_array_equal(reasons[1], fresh.contributions(other[[0]], np.arange(5)))
    assert np.abs(reasons[0] - reasons[1]).max() > 0
    with pytest.raises(ValueError, match="by their order"):
        model.scores(csr_matrix(long_tailed[:2]))
