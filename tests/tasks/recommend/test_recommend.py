"""What is published, asked from Python: it answers as the published lists say, with seen items and without them."""

import shutil
import time
import warnings
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

import oneclass
from oneclass.tasks.errors import InputError
from oneclass.tasks.explain.explanation import explain_user
from oneclass.tasks.publish.plan import PublicationPlan
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.recommend import UnknownItems, load
from oneclass.tasks.stores import checksums
from oneclass.tasks.stores.home import Home
from tests.conftest import flip_bit
from tests.tasks.conftest import publish_model


def test_many_histories_are_answered_as_one_is(by_model):
    for shop in by_model[1].values():
        given = pl.DataFrame({"user_id": ["b", "b", "a"], "item_id": ["i1", "i3", "i22"]})
        found = shop.recommend_many(given, n=4)
        assert found["user_id"].unique(maintain_order=True).to_list() == ["b", "a"]
        assert found["rank"].to_list() == [1, 2, 3, 4] * 2
        for user, history in (("b", ["i3", "i1"]), ("a", ["i22"])):
            one = shop.recommend(history, n=4)
            assert found.filter(pl.col("user_id") == user).drop("user_id", "rank").equals(one)
    assert len(shop.recommend_many(given.head(0))) == 0


def test_reasons_are_the_largest_weights_of_the_history(shop):
    weights = shop.fitted.weights
    column = {item: place for place, item in enumerate(shop.items["item_id"])}
    history = shop.history("u7")
    for item, because in shop.recommend(history, n=5).select("item_id", "because").iter_rows():
        added = {one: weights[column[one], column[item]] for one in history}
        best = sorted(added, key=lambda one: -added[one])[:3]
        assert because == [one for one in best if added[one] > 0] and because
        assert shop.reasons_for("u7", item) == [(one, float(added[one])) for one in because]


def test_filters_choose_among_items_and_leave_some_out(by_model):
    for shop in by_model[1].values():
        everything = shop.recommend(["i1", "i2"], n=99)
        assert len(everything) == len(shop.items) - 2
        best = everything["item_id"].to_list()
        without = shop.recommend(["i1", "i2"], n=99, without=[best[0], best[2], "never seen"])
        assert without["item_id"].to_list() == [best[1], *best[3:]]
        within = shop.recommend(["i1", "i2"], n=2, within=[best[9], best[0], best[5], "i1"], without=[best[0]])
        assert within.equals(everything.filter(pl.col("item_id").is_in([best[5], best[9]])))
        assert len(shop.recommend(["i1"], within=["i1"])) == len(shop.recommend(["i1"], within=[])) == 0


def test_items_that_are_not_known_are_named(shop):
    with pytest.warns(UnknownItems, match="history: not known in small, left out: nil, nought"):
        found = shop.recommend(["i1", "nil", "nought"], n=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found.equals(shop.recommend(["i1", "i1"], n=3))
    assert shop.unknown(["i1", "nil"]) == ["nil"]
    with pytest.warns(UnknownItems, match="nil") as warned:
        shop.recommend_many(pl.DataFrame({"user_id": ["a"], "item_id": ["nil"]}))
    assert [warning.filename for warning in warned] == [__file__]  # the line that asked


@pytest.mark.parametrize("model", ["mrf_dense", "slim", "wmf", "random_graph"])
def test_similar_items_are_of_the_same_taste(by_model, model):
    found = by_model[1][model].similar_items("i3", n=4)
    assert found.columns == ["item_id", "title", "score"] and found["score"].is_sorted(descending=True)
    assert "i3" not in found["item_id"] and all(int(item[1:]) < 20 for item in found["item_id"])
    assert found["title"].to_list() == [f"Item, the {item[1:]}th" for item in found["item_id"]]


def test_what_cannot_be_answered_is_refused(by_model, shop):
    for error, message, ask in (
        (InputError, "user nobody: is not among the 60 users of small", lambda: shop.recommend_for("nobody")),
        (InputError, "item nil: no user in small likes it", lambda: shop.similar_items("nil")),
        (InputError, "popularity has no similarities", lambda: by_model[1]["popularity"].similar_items("i3")),
        (ValueError, "n = 0", lambda: shop.recommend(["i1"], n=0)),
        (TypeError, "give a list of item ids", lambda: shop.recommend("i1")),
        (InputError, "no column user_id, only item", lambda: shop.recommend_many(pl.DataFrame({"item": ["i1"]}))),
        (ValueError, "seen = 'both': must be 'include' or 'exclude'", lambda: shop.recommend(["i1"], seen="both")),
    ):
        with pytest.raises(error, match=message):
            ask()


def test_a_later_publication_changes_nothing_of_what_was_loaded(copied, split_once):
    before = oneclass.load(copied.root, "small")
    answer = before.recommend_for("u7")
    while datetime.now(UTC) < before.published_at + timedelta(seconds=1):  # which has a resolution of a second
        time.sleep(0.05)
    publish_model(copied, split_once[1], "mrf_dense", "next")
    shutil.rmtree(copied.publications / "of-random_graph")
    assert before.recommend_for("u7").equals(answer)
    now = oneclass.load(copied.root, "small")
    assert (now.publication, now.model) == ("next", "mrf_dense") and now.published_at > before.published_at


def test_a_run_that_recommends_nothing_keeps_the_model_that_stood(copied):
    answer = oneclass.load(copied.root, "small").recommend_for("u7")
    publish(copied, "given-alone", PublicationPlan())
    after = oneclass.load(copied.root, "small")
    assert after.publication == "given-alone" and after.recommend_for("u7").equals(answer)


def test_a_home_without_a_whole_model_says_what_to_run(copied, tmp_path):
    with pytest.raises(InputError, match="nothing is published yet. Run `python -m flows.backfill --dataset small`"):
        oneclass.load(tmp_path, "small")
    flip_bit(copied.published / "model" / "items.parquet")
    with pytest.raises(checksums.DamagedFile, match="items.parquet.*run `python -m flows.backfill --dataset small`"):
        oneclass.load(copied.root, "small")
    shutil.rmtree(copied.published / "model")
    with pytest.raises(InputError, match="holds no model to ask"):
        oneclass.load(copied.root, "small")


MODEL, USER = "wmf", "u7"


@pytest.fixture(scope="module")
def included(by_model, split_once, tmp_path_factory):
    """A home with lists of wmf that include seen items, and what answers from it."""
    root = tmp_path_factory.mktemp("seen") / "var"
    shutil.copytree(by_model[0].root, root, symlinks=True)
    home = Home(root, "small", by_model[0].limits)
    publish_model(home, split_once[1], MODEL, "with seen", seen_items=True)
    return home, load(home.root, "small")


def rank_items(shop, user, *, without_history):
    """Item ids of a user, best first, by a full sort."""
    scores = shop.scores_for(user)
    ids = [shop.names.ids[column] for column in np.argsort(-scores, kind="stable")]
    return [item for item in ids if not (without_history and item in shop.history(user))]


def test_each_request_may_choose_otherwise(included, by_model):
    home, shop = included
    lists = pl.read_parquet(home.published / "recommendations.parquet").filter(user_id=USER).sort("rank")
    assert lists["item_id"].to_list() == rank_items(shop, USER, without_history=False)[:5]
    left_out, history = rank_items(shop, USER, without_history=True), shop.history(USER)
    assert shop.recommend_for(USER, n=9, seen="exclude")["item_id"].to_list() == left_out[:9]
    assert by_model[1][MODEL].recommend_for(USER, n=9)["item_id"].to_list() == left_out[:9]
    assert by_model[1][MODEL].recommend_for(USER, n=9, seen="include").equals(shop.recommend_for(USER, n=9))
    many = shop.recommend_many(pl.DataFrame({"user_id": [USER, "u8"]}), n=9, seen="exclude")
    assert many["item_id"].to_list() == left_out[:9] + rank_items(shop, "u8", without_history=True)[:9]
    some = shop.recommend(history, n=3, within=[*history[:2], left_out[0]], without=history[:1])["item_id"].to_list()
    assert sorted(some) == sorted([history[1], left_out[0]])
    assert len(shop.recommend(history, within=history, seen="exclude")) == 0


def test_an_explanation_marks_seen_items_and_ranks_them_among_all(included):
    home, shop = included
    ranking, history = rank_items(shop, USER, without_history=False), shop.history(USER)
    seen, other = (next(one for one in ranking if (one in history) is is_seen) for is_seen in (True, False))
    found = explain_user(home, USER, top=8, item_ids=[seen, other])
    wanted = [(seen, ", who likes it already"), (other, "")]
    for (item, words), explained in zip(wanted, found.rank_explanations, strict=True):
        assert f"{item}: rank {1 + ranking.index(item)} of {len(ranking)} for {USER}{words}, by wmf/" in explained
    assert [(row["item_id"], row["seen"]) for row in found.published.items] == [
        (item, item in history) for item in ranking[:8]
    ]
