"""Features of attributes, against the statement at the head of `models.attributes.encoder`."""

import doctest
import math
import zlib

import numpy as np
import polars as pl
import pytest

from oneclass.models.attributes.encoder import MAX_VALUES, TEXT_BUCKETS, FeatureEncoder

KINDS = {"brand": "category", "tags": "categories", "price": "number", "title": "text"}


def make_shop():
    return pl.DataFrame(
        {
            "item_id": ["a", "b", "c", "d"],
            "brand": ["Acme", None, "Zeta", "Acme"],
            "tags": [["red", "large"], [], None, ["red"]],
            "price": [10.0, None, 40.0, math.nan],
            "title": ["Red boat, red SAIL", None, "été_2024", ""],
        }
    )


def test_the_usage_example_gives_what_it_shows():
    (example,) = doctest.DocTestFinder(recurse=False).find(FeatureEncoder, "FeatureEncoder")
    assert doctest.DocTestRunner(verbose=False).run(example) == doctest.TestResults(failed=0, attempted=5)


def encode_dense(encoder, frame):
    return {
        name: dict(zip(encoder.feature_names, row, strict=True))
        for name, row in zip(frame["item_id"], encoder.encode(frame).toarray(), strict=True)
    }


def test_each_kind_is_encoded_as_stated():
    encoder = FeatureEncoder.fit(make_shop(), KINDS)
    features = encoder.encode(make_shop())
    assert features.dtype == np.float32 and features.has_canonical_format
    assert features.shape == (4, 2 + 2 + 1 + TEXT_BUCKETS) == (4, len(encoder.feature_names))
    rows = encode_dense(encoder, make_shop())
    assert rows["a"]["brand=Acme"] == 1 and rows["a"]["brand=Zeta"] == 0
    assert rows["a"]["tags=red"] == rows["a"]["tags=large"] == pytest.approx(1 / math.sqrt(2))
    assert rows["d"]["tags=red"] == 1
    assert (rows["a"]["price"], rows["c"]["price"]) == (-1, 1)  # 10 and 40 around 25
    words = {word: zlib.crc32(word.encode()) % TEXT_BUCKETS for word in ("red", "boat", "sail")}
    assert len(set(words.values())) == 3
    title = {word: rows["a"][f"title={bucket}"] for word, bucket in words.items()}
    assert title == pytest.approx({"red": 2 / math.sqrt(6), "boat": 1 / math.sqrt(6), "sail": 1 / math.sqrt(6)})
    accents = [f"title={zlib.crc32(word.encode()) % TEXT_BUCKETS}" for word in ("été", "2024")]
    assert [rows["c"][name] for name in accents] == pytest.approx([1 / math.sqrt(2)] * 2)


def test_each_cell_weighs_as_much_as_any_other():
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "one": rng.choice(list("abcdefgh"), 500),
            "many": [list(rng.choice(list("abcdefgh"), size, replace=False)) for size in rng.integers(1, 6, 500)],
            "number": rng.normal(1e6, 1e3, 500),
            "text": ["word " * size + "other" for size in rng.integers(1, 9, 500)],
        }
    )
    for column, kind in zip(frame.columns, ("category", "categories", "number", "text"), strict=True):
        features = FeatureEncoder.fit(frame, {column: kind}).encode(frame)
        squares = np.asarray(features.multiply(features).sum(axis=1)).ravel()
        assert squares.mean() == pytest.approx(1, abs=0.02)  # numbers are cut at three deviations
        assert kind == "number" or squares == pytest.approx(1, abs=1e-6)


def test_new_rows_are_encoded_with_the_values_of_the_fit():
    encoder = FeatureEncoder.fit(make_shop(), {"brand": "category", "price": "number"})
    new = pl.DataFrame({"brand": ["Zeta", "unknown"], "price": [1e9, 25.0]})
    assert encoder.encode(new).toarray().tolist() == [[0, 1, 3], [0, 0, 0]]  # three deviations at most


def test_a_constant_number_and_an_empty_column_say_nothing():
    frame = pl.DataFrame({"same": [7, 7], "none": [None, None]})
    for kind in ("number", "category", "text"):
        assert FeatureEncoder.fit(frame, {"none": kind}).encode(frame).nnz == 0
    assert FeatureEncoder.fit(frame, {"same": "number"}).encode(frame).nnz == 0


def test_the_most_frequent_values_are_kept():
    values = [f"v{number:04}" for number in range(MAX_VALUES + 50)]
    frame = pl.DataFrame({"code": values + values[50:]})
    encoder = FeatureEncoder.fit(frame, {"code": "category"})
    assert encoder.feature_names == [f"code={value}" for value in values[50:]]


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({"colour": "category"}, "column colour: not in the table of attributes, which has item_id"),
        ({"brand": "colour"}, "column brand: 'colour' is no kind"),
        ({"brand": "number"}, "column brand: of the type String, which is no number"),
        ({"tags": "category"}, "column tags: of the type List"),
        ({"brand": "categories"}, "column brand: of the type String, which does not go with the kind categories"),
    ],
)
def test_a_column_that_does_not_fit_its_kind_is_refused(kinds, message):
    with pytest.raises(ValueError, match=message):
        FeatureEncoder.fit(make_shop(), kinds)
