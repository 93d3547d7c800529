"""`oneclass.Interactions` from all that programs hold, against plain Python; its mistakes; and back."""

import itertools
from collections import defaultdict
from datetime import datetime, timedelta

import duckdb
import numpy as np
import polars as pl
import pytest
from scipy.sparse import coo_array, csr_matrix

from oneclass import Interactions, Popularity

DAY = datetime(2026, 1, 1)
RNG = np.random.default_rng(3)
ROWS = [  # user, item, weight, time
    (f"u{RNG.integers(9)}", f"i{RNG.integers(7)}", float(RNG.integers(1, 5)), DAY + timedelta(hours=int(hours)))
    for hours in RNG.integers(0, 240, 80)
]
FRAME = pl.DataFrame(ROWS, schema=["user_id", "item_id", "weight", "time"], orient="row")


def sum_pairs(rows):
    """The weight of each pair, by plain Python."""
    weights = defaultdict(float)
    for user, item, weight, *_ in rows:
        weights[user, item] += weight
    return dict(weights)


def list_pairs(interactions):
    """The entries of the matrix by ids."""
    coo = interactions.matrix.tocoo()
    entries = zip(coo.row, coo.col, coo.data, strict=True)
    return {
        (interactions.user_ids[int(row)], interactions.item_ids[int(column)]): value for row, column, value in entries
    }


SOURCES = {
    "polars": lambda: FRAME,
    "lazy": lambda: FRAME.lazy(),
    "arrow": lambda: FRAME.to_arrow(),
    "mapping": lambda: FRAME.to_dict(as_series=False),
    "tuples": lambda: ROWS,
    "generator": lambda: (row for row in ROWS),
    "duckdb": lambda: duckdb.from_arrow(FRAME.to_arrow()),
    "pandas": lambda: pytest.importorskip("pandas").DataFrame(ROWS, columns=["customer", "product", "weight", "date"]),
    "categories": lambda: FRAME.with_columns(pl.col("user_id").cast(pl.Categorical)),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_each_source_gives_the_sums_of_plain_python(kind):
    interactions = Interactions(SOURCES[kind]())
    assert list_pairs(interactions) == sum_pairs(ROWS)
    assert interactions.user_ids.to_list() == sorted({row[0] for row in ROWS})
    assert interactions.item_ids.to_list() == sorted({row[1] for row in ROWS})
    assert interactions.events["time"].to_list() == [row[3] for row in ROWS]


def test_without_weights_each_event_counts_one():
    counted = Interactions([row[:2] for row in ROWS])
    assert list_pairs(counted) == sum_pairs([(*row[:2], 1.0) for row in ROWS])


@pytest.mark.parametrize("kind", [csr_matrix, coo_array, np.asarray])
def test_a_matrix_there_and_back(kind):
    dense = RNG.integers(0, 3, (6, 5)).astype(float)
    dense[:, 3] = 0  # an item without an event keeps its column
    interactions = Interactions(kind(dense))
    np.testing.assert_array_equal(interactions.matrix.toarray(), dense)
    assert interactions.item_ids.to_list() == list(range(5))
    named = Interactions.from_matrix(kind(dense), user_ids=list("fedcba"), item_ids=[50, 10, 20, 30, 40])
    np.testing.assert_array_equal(named.matrix.toarray(), dense)
    assert list_pairs(named) == {
        ("fedcba"[u], [50, 10, 20, 30, 40][i]): dense[u, i] for u, i in zip(*dense.nonzero(), strict=True)
    }


def test_the_order_and_the_ages_of_likes_are_those_of_plain_python():
    interactions = Interactions(FRAME)
    matrix, last = interactions.matrix, max(row[3] for row in ROWS).date()
    firsts, days = {}, defaultdict(list)
    for user, item, _, time in ROWS:
        firsts[user, item] = min(firsts.get((user, item), time), time)
        days[user, item].append((last - time.date()).days)
    found_days, ranks = {}, {}
    for entry, pair in enumerate(list_pairs(interactions)):
        starts = matrix.event_ages.starts
        found_days[pair] = matrix.event_ages.days[starts[entry] : starts[entry + 1]].tolist()
        ranks[pair] = matrix.recency_ranks[entry]
    assert found_days == {pair: sorted(ages) for pair, ages in days.items()}
    for user in interactions.user_ids:
        own = [pair for pair in firsts if pair[0] == user]
        for pair, other in itertools.product(own, own):
            assert (ranks[pair] < ranks[other]) == (firsts[pair] > firsts[other])


def test_numbers_are_seconds_and_zones_become_utc():
    seconds = Interactions(FRAME.with_columns(pl.col("time").dt.epoch("s")))
    zoned = FRAME.with_columns(pl.col("time").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"))
    for other in (seconds, Interactions(zoned), Interactions(FRAME.with_columns(pl.col("time").dt.to_string()))):
        assert other.events["time"].to_list() == [row[3] for row in ROWS]


def test_saved_interactions_are_loaded_equal(tmp_path):
    items = pl.DataFrame({"item_id": ["i1", "i2"], "genre": ["a", "b"]})
    before = Interactions(FRAME, items=items)
    before.save(tmp_path / "deep" / "er")
    after = Interactions.load(tmp_path / "deep" / "er")
    assert list_pairs(after) == list_pairs(before) and repr(after) == repr(before)
    assert after.items.equals(items)
    np.testing.assert_array_equal(after.matrix.recency_ranks, before.matrix.recency_ranks)


def test_attributes_are_features_in_the_order_of_the_ids():
    items = pl.DataFrame({"item": ["i3", "i0", "zz"], "genre": [["a", "b"], ["b"], ["a"]], "price": [1, 2, 3]})
    features = Interactions(FRAME, items=items).item_features.toarray()
    ids = sorted({row[1] for row in ROWS})
    given = {ids.index("i3"), ids.index("i0")}
    assert [bool(row.any()) for row in features] == [index in given for index in range(len(ids))]
    np.testing.assert_allclose(sorted(features[ids.index("i3")][:2]), [0.5**0.5] * 2)


PAIRS = np.stack([np.arange(1, 31), np.arange(30, 0, -1)], 1)
MISTAKES = {
    "no such columns": (lambda: Interactions({"a": [1], "b": [2]}), "no column of users among a, b; name it"),
    "a wrong name": (lambda: Interactions(FRAME, user="usr"), "no column named usr among user_id"),
    "pairs": (lambda: Interactions(csr_matrix(PAIRS)), "look like pairs of ids"),
    "a model on pairs": (lambda: Popularity().fit(csr_matrix(PAIRS)), "look like pairs of ids"),
    "a few pairs": (lambda: Interactions(np.array([[0, 5], [1, 7], [2, 5]])), "may be pairs of ids; give"),
    "a missing id": (lambda: Interactions([("a", "x"), (None, "x")]), "ids of users: 1 of 2 are missing, .* row 1"),
    "numbers with gaps": (lambda: Interactions({"user": [1.0, 2.5], "item": [1, 2]}), "Float64; .*pandas makes"),
    "weights": (lambda: Interactions([("a", "x", 1), ("a", "y", -2)]), "weights: -2 in row 1 is not a positive"),
    "lengths": (lambda: Interactions([("a", "x"), ("a",)]), r"lengths are \[1, 2\]"),
    "no tuples": (lambda: Interactions([1, 2, 3]), "a list holds .* here is 1"),
    "nothing": (lambda: Interactions([]), "no row"),
    "ids of a matrix": (lambda: Interactions.from_matrix(np.eye(3), user_ids=["a"]), "1 ids, 1 of them .* 3 users"),
    "users of two types": (lambda: Interactions([("a", 1), (2, 1)]), "Int64: 2 .* 'user_id'; give .* by str"),
    "nested ids": (lambda: Interactions([((1, 2), "x")]), r"ids of users: of type List\(Int64\)"),
    "columns of two lengths": (
        lambda: Interactions({"user": [1, 2], "item": [1]}),
        r"'item' \(1\) .*'user' \(2\); give",
    ),
    "a row of an array": (lambda: Interactions(np.arange(3)), "an array of 1 dimensions; give a users x items"),
    "a length as time": (lambda: Interactions([("a", "x", 1, timedelta(1))]), "times: of type Duration"),
    "large ids": (lambda: Interactions([(2**63, "x")]), r"9223372036854775808 is above 2\^63 - 1; give texts"),
    "an array of texts": (lambda: Interactions(np.array([["a", "x"]])), r"an array of type <U1 .*map\(tuple, array"),
    "a word as time": (
        lambda: Interactions([("a", "x", 1.0, "soon")]),
        r"times: .* such as \['soon'\], cannot be read; give",
    ),
    "attributes of others": (
        lambda: Interactions(FRAME, items={"item_id": [1, 2], "genre": ["a", "b"]}).item_features,
        "attributes: 1 is a number, and an id of the interactions, 'i0', is a text; give ids of one type",
    ),
    "attributes twice": (
        lambda: Interactions(FRAME, items={"item_id": ["i1", "i1"], "genre": ["a", "b"]}),
        "'i1' has several rows",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_likely_mistake_is_refused_with_what_to_do(mistake):
    make, message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=message):
        make()


def test_anything_else_is_refused():
    with pytest.raises(TypeError, match="a int; give a frame of Polars, pandas, Arrow or DuckDB"):
        Interactions(5)
    with pytest.raises(TypeError, match=r"a str; give .* such as of polars.read_csv\(path\)"):
        Interactions("log.csv")


def test_a_small_array_of_ones_is_a_matrix_and_counts_are_one_as_csr():
    ones, counts = np.array([[0, 1], [1, 1], [1, 0]]), np.array([[0, 5], [1, 7], [2, 5]])
    assert Interactions(ones).matrix.shape == (3, 2)
    assert Interactions(csr_matrix(counts)).matrix.sum() == counts.sum()
    with pytest.raises(TypeError, match="a ndarray .* give oneclass.Interactions of pairs of ids"):
        Popularity().fit(counts.astype(np.float32))
