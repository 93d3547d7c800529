"""Items that nobody likes yet, in lists and under the protocol cold_items, against recounts in plain Python."""

from collections import defaultdict

import numpy as np
import polars as pl
import pytest

from oneclass.models.attributes.encoder import FeatureEncoder
from oneclass.models.evaluation.ranks_apart import OF_NEW_ITEMS
from oneclass.models.registry import MODELS
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.sections import AttributeTable
from oneclass.tasks.errors import InputError
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.ingest.attributes import store_attributes
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend import load
from oneclass.tasks.rules.settings import NO_RULES
from oneclass.tasks.stores import fits, matrices, warehouse
from tests.conftest import home_in, load_entries, load_ids, query_rows, two_tastes
from tests.models.evaluation.test_metrics import compute_naively
from tests.tasks.conftest import copy_of, ingest_with_items, md5_number, publish_fit, split_likes, train_model

KINDS = {"taste": "category", "price": "number"}


def table_of(rows):
    return pl.DataFrame(rows, schema=["item_id", "taste", "price"], orient="row")


def describe_items(home, tmp_path, rows):
    """Store a table of attributes with these rows, as an ingest does."""
    table_of(rows).write_csv(tmp_path / "items.csv")
    items = AttributeTable(file=str(tmp_path / "items.csv"), category=["taste"], number=["price"])
    with warehouse.open_warehouse(home) as connection:
        store_attributes(connection, "run", Dataset(name="small", items=items))


def split_all(home):
    return split_likes(home, "leave_one_out", held_out_share=0.2)


@pytest.fixture(scope="module")
def binarized_tastes(tmp_path_factory):
    """60 users of two tastes; i18 has no attributes, and the new n1 and n2 nobody likes."""
    home = home_in(tmp_path_factory.mktemp("binarized"))
    two_tastes(home)
    split_all(home)
    return home, [*((f"i{at}", str(at // 20), at) for at in range(40) if at != 18), ("n1", "0", 5), ("n2", "1", None)]


rows = copy_of("binarized_tastes")


def test_items_that_nobody_likes_have_columns_without_edges(home, rows, tmp_path):
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

    table = table_of(rows).cast({"price": pl.Float64})
    encoded = FeatureEncoder.fit(table, KINDS).encode(table).toarray()
    by_id = dict(zip(table["item_id"], encoded, strict=True)) | {"i18": np.zeros(encoded.shape[1])}
    id_of = {index: item_id for item_id, index in ids.items()} | {len(ids): "n1", len(ids) + 1: "n2"}
    for of_split in (loaded, held_out):
        wanted = np.stack([by_id[id_of[index]] for index in of_split.items])
        np.testing.assert_array_equal(of_split.item_features.toarray(), wanted)
    assert before.item_features is None


def test_a_changed_table_makes_other_splits(home, rows, tmp_path):
    digests = []
    for table in (rows, rows, [*rows[:-1], ("n2", "0", 1)]):
        describe_items(home, tmp_path, table)
        digests.append(split_all(home)[ALL_EDGES])
    assert digests[0] == digests[1] != digests[2]


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
    return lists.with_columns(
        taste=pl.when(item == "n2").then(1).otherwise(number // 20),
        of_user=user.str.slice(1).cast(pl.Int64) % 2,
    )


@pytest.mark.parametrize(("model", "least"), [("mrf_dense", 30), ("wmf", 10)])
def test_a_new_item_is_in_the_lists_where_it_belongs_and_in_answers_alike(home, rows, tmp_path, model, least):
    describe_items(home, tmp_path, rows)
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
    recommender = load(home.root, home.dataset)
    many = recommender.recommend_many(pl.DataFrame({"user_id": ["u0", "u1", "u2", "u3"]}), n=10)
    for (user_id,), answer in many.partition_by("user_id", as_dict=True).items():
        asked, published = recommender.recommend_for(user_id, n=10), lists.filter(user_id=user_id)
        assert answer["item_id"].to_list() == published["item_id"].to_list()
        assert asked["item_id"].to_list() == published["item_id"].to_list()
        assert asked["because"].to_list() == published["because"].fill_null([]).to_list()
        assert (asked["mark"] == "new").fill_null(value=False).to_list() == published["is_new"].to_list()
    assert len(recommender.recommend_for("u0", n=1000)) == 42 - len(recommender.history("u0"))  # all that are left


def test_the_share_of_new_items_is_bounded(home, rows, tmp_path):
    describe_items(home, tmp_path, rows)
    assert publish_lists(home, cold_share=0.0)["is_new"].sum() == 0
    describe_items(home, tmp_path, [*rows, *((f"n{number}", "0", 5) for number in (3, 4, 5))])
    lists = publish_lists(home, run_id="next", cold_share=0.2).filter("is_new")
    assert lists.group_by("user_id").len()["len"].max() == 2


USERS, ITEMS, SEED = 90, 60, 3


def draw_log():
    """Users who like the items of one genre; some with a single like."""
    random = np.random.default_rng(0)
    return sorted(
        {
            (f"u{user}", f"i{int(random.integers(ITEMS // 3)) * 3 + user % 3}")
            for user in range(USERS)
            for _ in range(1 if user % 4 == 0 else 14)
        }
    )


def is_drawn(text):
    return md5_number(text) % 1000000007 / 1000000007 < 0.1


def expected_roles(pairs):
    roles = {}
    for user, item in pairs:
        is_new, held_out = is_drawn(f"{SEED}:cold_item:{item}"), is_drawn(f"{SEED}:cold_edge:{user}:{item}")
        roles[user, item] = "new" if is_new else "held_out" if held_out else "train"
    trained = {user for (user, _), role in roles.items() if role == "train"}
    return {pair: role if pair[0] in trained else "dropped" for pair, role in roles.items()}


@pytest.fixture(scope="module")
def binarized(tmp_path_factory):
    """(home, likes) of a log whose items have a table."""
    tmp_path = tmp_path_factory.mktemp("binarized")
    home, pairs = home_in(tmp_path), draw_log()
    log = "user_id,item_id\n" + "".join(f"{user},{item}\n" for user, item in pairs)
    genres = "".join(f"i{item},g{item % 3},{item % 7}\n" for item in range(ITEMS) if item != 8)
    kinds = {"category": ("genre",), "number": ("price",)}
    ingest_with_items(home, tmp_path, log, f"item_id,genre,price\n{genres}", **kinds)
    return home, pairs


shop = copy_of("binarized")


def test_roles_and_matrices_are_those_of_the_hashes(home, shop):
    stored = matrices.load_split(home, split_likes(home, "cold_items", seed=SEED)["cold_items"])
    expected = expected_roles(shop)
    assert {(user, item): role for user, item, role in query_rows(home, "from splits.cold_items")} == expected
    assert set(expected.values()) == {"train", "held_out", "new", "dropped"}
    items, part = load_ids(home, "item"), stored.parts["test"]
    for matrix, of_rows, roles in (
        (stored.train, stored.users, {"train"}),
        (part.targets, part.users, {"held_out", "new"}),
    ):
        found = load_entries(home, matrix, of_rows, stored.items)
        assert found.keys() == {pair for pair, role in expected.items() if role in roles}
    new_items = {item for (_, item), role in expected.items() if role == "new"}
    assert {items[column] for column in part.new_items} == new_items
    assert not stored.train[:, part.new_items].nnz


def test_metrics_are_those_of_a_recount(home, shop):
    """The models' scores, ranked by sorting in plain Python: new items among new ones, known among known ones."""
    digest = split_likes(home, "cold_items", seed=SEED)["cold_items"]
    stored, digests = matrices.load_split(home, digest), {}
    part = stored.parts["test"]
    for model in ("popularity", "wmf", "mrf_dense"):
        settings = MODELS[model].Settings(**({"factors": 8} if model == "wmf" else {}))
        digests[model] = train_model(home, digest, model, settings, protocol="cold_items").digest
    evaluated = evaluate(home, "run", "cold_items", [(digest, digests)])
    assert evaluated.users == len(part.users) and not evaluated.failed
    query = "select model, metric, value, users from evaluation.metrics"
    table = {(model, metric): rest for model, metric, *rest in query_rows(home, query)}
    is_new = np.isin(np.arange(ITEMS), part.new_items)
    for model, of_fit in digests.items():
        fitted, expected = fits.load_fit(home, model, of_fit), defaultdict(list)
        scores = fitted.scores(part.histories, users=part.rows)
        for row, (own, wanted) in enumerate(zip(part.histories.toarray() > 0, part.targets.toarray() > 0, strict=True)):
            for suffix, candidates in (("_new_items", is_new), ("", ~is_new)):
                if (wanted & candidates).any():
                    found = compute_naively(scores[row], own | ~candidates, wanted & candidates)
                    for metric in OF_NEW_ITEMS.values():
                        expected[f"{metric}{suffix}"].append(found[metric])
        for metric, of_users in expected.items():
            assert table[model, metric] == [pytest.approx(np.mean(of_users)), len(of_users)], (model, metric)
    assert table["wmf", "ndcg@100_new_items"][0] > table["popularity", "ndcg@100_new_items"][0] + 0.2


def test_without_attributes_the_protocol_says_what_to_write(home, log_events):
    log_events([(user, item, 1, None) for user, item in draw_log()])
    with pytest.raises(InputError, match=r"protocol cold_items: needs attributes of items.*under \[items\]"):
        split_likes(home, "cold_items", seed=SEED)
