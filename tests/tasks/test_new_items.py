"""Items that nobody likes yet: their columns, their features, and the lists that they are in."""

import shutil

import numpy as np
import polars as pl
import pytest

from oneclass.models.attributes.encoder import FeatureEncoder
from oneclass.models.registry import MODELS
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.sections import AttributeTable
from oneclass.tasks.ingest.attributes import store_attributes
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend import load
from oneclass.tasks.rules.settings import NO_RULES
from oneclass.tasks.stores import matrices, warehouse
from tests.conftest import home_in, query_rows, two_tastes
from tests.tasks.conftest import publish_fit, split_likes, train_model

KINDS = {"taste": "category", "price": "number"}


def describe_items(home, tmp_path, rows):
    """Store a table of attributes with these rows, as an ingest does."""
    pl.DataFrame(rows, schema=["item_id", "taste", "price"], orient="row").write_csv(tmp_path / "items.csv")
    items = AttributeTable(file=str(tmp_path / "items.csv"), category=["taste"], number=["price"])
    with warehouse.open_warehouse(home) as connection:
        store_attributes(connection, "run", Dataset(name="small", items=items))


def split_all(home):
    return split_likes(home, "leave_one_out", held_out_share=0.2)


@pytest.fixture(scope="module")
def binarized(tmp_path_factory):
    home = home_in(tmp_path_factory.mktemp("binarized"))
    two_tastes(home)
    split_all(home)
    return home


@pytest.fixture
def shop(home, binarized):
    """60 users of two tastes; i18 has no attributes, and the new n1 and n2 nobody likes."""
    shutil.copytree(binarized.root, home.root)
    known = [(f"i{item}", str(item // 20), item) for item in range(40) if item != 18]
    return home, [*known, ("n1", "0", 5), ("n2", "1", None)]


def test_items_that_nobody_likes_have_columns_without_edges(shop, tmp_path):
    home, rows = shop
    without = split_all(home)
    describe_items(home, tmp_path, rows)
    digests = split_all(home)
    with warehouse.open_warehouse(home, read_only=True) as connection:
        ids = dict(connection.sql("select item_id, item_index from indexed.items").fetchall())
        assert connection.sql("from indexed.new_items").fetchall() == [(len(ids), "n1"), (len(ids) + 1, "n2")]
    loaded, before = (matrices.load_split(home, of[ALL_EDGES]) for of in (digests, without))
    assert loaded.items.tolist() == [*before.items, len(ids), len(ids) + 1]
    assert np.diff(loaded.train.tocsc().indptr)[len(ids) :].tolist() == [0, 0]
    assert (loaded.train[:, : len(ids)] != before.train).nnz == 0
    held_out = matrices.load_split(home, digests["leave_one_out"])
    assert held_out.items.tolist() == before.items.tolist()  # new items are no candidates there

    table = pl.DataFrame(rows, schema=["item_id", "taste", "price"], orient="row").cast({"price": pl.Float64})
    encoded = FeatureEncoder.fit(table, KINDS).encode(table).toarray()
    by_id = dict(zip(table["item_id"], encoded, strict=True)) | {"i18": np.zeros(encoded.shape[1])}
    index_of = {**ids, "n1": len(ids), "n2": len(ids) + 1}
    for of_split in (loaded, held_out):
        for column, index in enumerate(of_split.items):
            (item_id,) = (one for one, number in index_of.items() if number == index)
            np.testing.assert_array_equal(of_split.item_features[column].toarray()[0], by_id[item_id], item_id)
    assert before.item_features is None


def test_a_changed_table_makes_other_splits(shop, tmp_path):
    home, rows = shop
    digests = []
    for table in (rows, rows, [*rows[:-1], ("n2", "0", 1)]):
        describe_items(home, tmp_path, table)
        digests.append(split_all(home))
    assert digests[0] == digests[1] and digests[2][ALL_EDGES] != digests[0][ALL_EDGES]
    with warehouse.open_warehouse(home) as connection:
        store_attributes(connection, "run", Dataset(name="small"))
    assert matrices.load_split(home, split_all(home)[ALL_EDGES]).item_features is None


def publish_lists(home, model="mrf_dense", run_id="run", declared=NO_RULES, **settings):
    """Publish lists of ten items and return them, best first, with the taste of user and item."""
    digest = split_all(home)[ALL_EDGES]
    estimator = MODELS[model]
    fit = train_model(home, digest, model, run_id=run_id)
    given = PublishSettings(top_n=10, **settings)
    publish_fit(home, run_id, given, model, estimator.score_names[0], fit.digest, digest, declared=declared)
    lists = pl.read_parquet(home.published / "recommendations.parquet")
    item, user = pl.col("item_id"), pl.col("user_id")
    number = item.str.slice(1).cast(pl.Int64)
    of_new = item.replace_strict({"n1": 0, "n3": 0, "n4": 0, "n5": 0, "n2": 1}, default=None, return_dtype=pl.Int64)
    return lists.with_columns(
        taste=pl.when(item.str.starts_with("n")).then(of_new).otherwise(number // 20),
        of_user=user.str.slice(1).cast(pl.Int64) % 2,
    )


@pytest.mark.parametrize(("model", "least"), [("mrf_dense", 30), ("wmf", 10)])
def test_a_new_item_is_in_the_lists_where_it_belongs(shop, tmp_path, model, least):
    home, described = shop
    describe_items(home, tmp_path, described)
    lists = publish_lists(home, model)
    new = lists.filter("is_new")
    assert new["user_id"].n_unique() >= least  # of 60
    assert (new["taste"] == new["of_user"]).all()
    assert new.group_by("user_id").len()["len"].max() == 1  # a tenth of ten
    assert lists.filter(pl.col("is_new") != pl.col("item_id").str.starts_with("n")).is_empty()
    likes = set(query_rows(home, "select distinct user_id, item_id from raw.events"))
    for user_id, item_id, because in new.select("user_id", "item_id", "because").iter_rows():
        assert 1 <= len(because) <= 3 and all((user_id, reason) in likes for reason in because)
        assert {int(reason[1:]) // 20 for reason in because} == {int(item_id == "n2")}


def test_requests_have_the_new_items_of_the_published_lists(shop, tmp_path):
    home, rows = shop
    describe_items(home, tmp_path, rows)
    lists = publish_lists(home)
    recommender = load(home.root, home.dataset)
    for user_id in ("u0", "u1", "u2", "u3"):
        asked = recommender.recommend_for(user_id, n=10)
        published = lists.filter(pl.col("user_id") == user_id)
        assert asked["item_id"].to_list() == published["item_id"].to_list()
        assert asked["because"].to_list() == published["because"].fill_null([]).to_list()
        assert (asked["mark"] == "new").fill_null(value=False).to_list() == published["is_new"].to_list()
    assert len(recommender.recommend_for("u0", n=1000)) == 42 - len(recommender.history("u0"))  # all that are left
    many = recommender.recommend_many(pl.DataFrame({"user_id": ["u0", "u3"]}), n=10)
    wanted = lists.filter(pl.col("user_id").is_in(["u0", "u3"]))
    assert many["item_id"].to_list() == wanted["item_id"].to_list()


def test_the_share_of_new_items_is_bounded(shop, tmp_path):
    home, rows = shop
    describe_items(home, tmp_path, rows)
    assert publish_lists(home, cold_share=0.0)["is_new"].sum() == 0
    (tmp_path / "items.csv").unlink()
    describe_items(home, tmp_path, [*rows, *((f"n{number}", "0", 5) for number in (3, 4, 5))])
    lists = publish_lists(home, run_id="next", cold_share=0.2).filter("is_new")
    assert lists.group_by("user_id").len()["len"].max() == 2
