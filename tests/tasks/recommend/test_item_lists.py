"""Lists for everybody: what Python, the command and HTTP answer is what `published.lists` has."""

import json
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from oneclass.flows import commands
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.recommend import load
from tests.conftest import home_in
from tests.tasks.conftest import ingest_with_items, publish_model, split_likes
from tests.tasks.serve.test_list_routes import Asker

GENRES = ("a", "b")


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """A home whose publication has lists of all kinds, and what answers from it; i7 is wanted of late, i8 is new."""
    folder = tmp_path_factory.mktemp("listed")
    home, random, lines = home_in(folder), np.random.default_rng(0), []
    for _ in range(4000):
        day = 60 * random.random()
        item = int(random.zipf(1.3)) % 7
        if day > 55:
            item = random.choice([7, 7, 8, item])
        item = 7 if random.random() < 0.02 else item
        time = datetime(2026, 1, 1) + timedelta(seconds=int(day * 86400))
        lines.append(f"u{random.integers(500)},i{item},{time}")
    table = "item_id,genre\n" + "".join(f"i{item},{GENRES[item % 2]}\n" for item in range(9))
    home.root.mkdir()
    (home.root / "titles.csv").write_text("item_id,title\ni7,Seven\n")
    log = "\n".join(["user_id,item_id,time", *lines, ""])
    ingest_with_items(home, folder, log, table, category=["genre"])
    digests = split_likes(home, "leave_one_out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.tasks.publish.lists.WINDOWS", (5, 30))
        patch.setattr("oneclass.tasks.publish.lists.LENGTH", 6)
        publish_model(home, digests[ALL_EDGES], "popularity", "run")
    return home, load(home.root, "small")


def test_a_list_is_that_of_the_table_with_titles(listed):
    home, shop = listed
    table = pl.read_parquet(home.published / "lists.parquet")
    for (name, category, days), rows in table.partition_by("list", "category", "window_days", as_dict=True).items():
        found = shop.list_items(name, 99, category=category, window_days=days)
        columns = ["item_id", "value", "users", "expected_users", "p_value"]
        assert found.select(columns).equals(rows.sort("rank").select(columns)) and len(found)
        assert shop.list_items(name, 1, category=category, window_days=days).equals(found.head(1))
    assert shop.list_items("trending", category="b").equals(shop.list_items("trending", category="b", window_days=30))
    assert shop.list_items("trending", window_days=5)["item_id"].to_list() == ["i7"]
    assert shop.list_items("trending", window_days=5)["title"].to_list() == ["Seven"]
    assert shop.list_items("trending", category="a", window_days=5).is_empty()
    assert shop.list_items("new", window_days=5)["item_id"].to_list() == ["i8"]


def test_a_history_without_a_known_item_gets_the_popular_list_and_then_the_items_of_all_times(listed):
    _, shop = listed
    of_window = shop.list_items("popular")["item_id"].to_list()
    of_all_times = shop.items.sort("users", descending=True, maintain_order=True)["item_id"].to_list()
    expected = of_window + [item for item in of_all_times if item not in of_window]
    assert len(of_window) == 6 and expected != of_all_times
    with pytest.warns(UserWarning, match="not known"):
        assert shop.recommend(["unheard of"], 20)["item_id"].to_list() == expected
    many = shop.recommend_many(pl.DataFrame({"user_id": ["new", "known"], "item_id": ["unheard of", "i1"]}), 20)
    assert many.filter(user_id="new")["item_id"].to_list() == expected
    assert many.filter(user_id="known")["item_id"].to_list() == shop.recommend(["i1"], 20)["item_id"].to_list()
    assert shop.recommend([], 20, without=expected[:2])["item_id"].to_list() == expected[2:]


def test_what_is_not_there_is_refused_with_what_is(listed, by_model):
    _, shop = listed
    for message, arguments in {
        "list best: does not exist; the lists are popular, trending, new": {"name": "best"},
        "list new: is of all items only": {"name": "new", "category": "a"},
        "category c: no item that users like has it. Categories: a, b": {"name": "popular", "category": "c"},
        r"window 7: lists are published for 5, 30 days": {"name": "new", "window_days": 7},
    }.items():
        with pytest.raises(InputError, match=message):
            shop.list_items(**arguments)
    with pytest.raises(ValueError, match="n = 0"):
        shop.list_items("new", 0)
    untimed = by_model[1]["wmf"]
    assert (
        untimed.list_items("popular", 9)["users"].to_list()
        == untimed.items["users"].sort(descending=True)[:9].to_list()
    )
    with pytest.raises(InputError, match="list trending: takes the times of events"):
        untimed.list_items("trending")
    with pytest.raises(InputError, match="Categories: none; name columns of"):
        untimed.list_items("popular", category="a")


def test_the_command_and_http_answer_alike(listed, capsys):
    home, shop = listed
    arguments = ["--dataset", "small", "--home", str(home.root), "--list", "popular", "--n", "3"]
    expected = shop.list_items("popular", 3, window_days=5).to_dicts()
    extra = ["--window-days", "5"]
    assert commands.main("recommend", [*arguments, *extra, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == expected
    assert commands.main("recommend", [*arguments, *extra]) == 0
    printed = capsys.readouterr().out
    assert "popular items" in printed and all(item["item_id"] in printed for item in expected)
    assert commands.main("recommend", [*arguments, "--user", "u1"]) == 2
    ask = Asker(home)
    for path in ("/popular", "/lists/popular"):
        answer = ask("GET", path, params={"window_days": 5, "n": 3})
        assert answer.json() == {"dataset": "small", "publication": "run", "next": None, "items": expected}
    assert ask("GET", "/lists/best").status_code == 422
    refused = ask("GET", "/lists/popular", params={"category": "c"})
    assert refused.status_code == 404 and "Categories: a, b" in refused.json()["detail"]
