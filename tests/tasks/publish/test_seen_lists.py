"""Published lists with the items of the histories: what each way to ask answers, against a full sort of the scores."""

import shutil

import numpy as np
import polars as pl
import pytest

from oneclass.tasks.explain import views
from oneclass.tasks.explain.explanation import explain_user
from oneclass.tasks.recommend import load
from oneclass.tasks.stores import published_model
from oneclass.tasks.stores.home import Home
from tests.tasks.conftest import publish_model

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


def test_published_lists_are_the_best_of_all_items(included):
    home, shop = included
    assert shop.seen == "include" and published_model.seen_choice({}) == "exclude"
    lists = pl.read_parquet(home.published / "recommendations.parquet")
    assert lists["user_id"].n_unique() == 60
    seen = 0
    for (user,), of_user in lists.partition_by("user_id", as_dict=True).items():
        expected = rank_items(shop, user, without_history=False)[:5]
        assert of_user.sort("rank")["item_id"].to_list() == expected
        assert shop.recommend_for(user, n=5)["item_id"].to_list() == expected
        seen += len(set(expected) & set(shop.history(user)))
    assert seen > 60  # wmf fits what it has seen


def test_each_request_may_choose_otherwise(included, by_model):
    _, shop = included
    left_out, history = rank_items(shop, USER, without_history=True), shop.history(USER)
    assert shop.recommend_for(USER, n=9, seen="exclude")["item_id"].to_list() == left_out[:9]
    assert by_model[1][MODEL].recommend_for(USER, n=9)["item_id"].to_list() == left_out[:9]
    assert by_model[1][MODEL].recommend_for(USER, n=9, seen="include").equals(shop.recommend_for(USER, n=9))
    many = shop.recommend_many(pl.DataFrame({"user_id": [USER, "u8"]}), n=9, seen="exclude")
    assert many["item_id"].to_list() == left_out[:9] + rank_items(shop, "u8", without_history=True)[:9]
    some = shop.recommend(history, n=3, within=[*history[:2], left_out[0]], without=history[:1])["item_id"].to_list()
    assert sorted(some) == sorted([history[1], left_out[0]])
    assert len(shop.recommend(history, within=history, seen="exclude")) == 0
    with pytest.raises(ValueError, match="seen = 'both': must be 'include' or 'exclude'"):
        shop.recommend(history, seen="both")


def test_an_explanation_marks_seen_items_and_ranks_them_among_all(included):
    home, shop = included
    ranking, history = rank_items(shop, USER, without_history=False), shop.history(USER)
    item = next(one for one in ranking if one in history)
    found = explain_user(home, USER, top=8, item_ids=[item])
    place = 1 + ranking.index(item)
    assert (
        f"{item}: rank {place} of {len(ranking)} for {USER}, who likes it already, by wmf/"
        in found.rank_explanations[0]
    )
    other = next(one for one in ranking if one not in history)
    words = f"{other}: rank {1 + ranking.index(other)} of {len(ranking)} for {USER}, by wmf/"
    assert words in explain_user(home, USER, item_ids=[item, other]).rank_explanations[1]
    assert [row["item_id"] for row in found.published.items] == ranking[:8]
    assert [row["seen"] for row in found.published.items] == [
        row["item_id"] in history for row in found.published.items
    ]
    assert "+ seen: the user likes it already" in views.format_explanation(found)
