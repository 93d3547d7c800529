"""Lists for everybody, against a recount in plain Python; and what Python, the command and HTTP answer of them."""

import json
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from math import comb

import numpy as np
import polars as pl
import pytest

from oneclass.flows import commands
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish import files
from oneclass.tasks.publish.plan import PublicationPlan
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.recommend import load
from oneclass.tasks.rules.settings import NO_RULES, DeclaredRules, Rules
from oneclass.tasks.stores import warehouse
from tests.conftest import home_in
from tests.tasks.conftest import ingest_with_items, publish_model, split_likes
from tests.tasks.serve.test_list_routes import Asker

WINDOWS, LENGTH = (3, 20), 15
START = datetime(2026, 1, 1)


def store_lists(home, declared=NO_RULES):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "WINDOWS", WINDOWS)
        patch.setattr(files, "LIST_LENGTH", LENGTH)
        publish(home, "run", PublicationPlan(declared=declared))
    with warehouse.open_warehouse(home, read_only=True) as connection:
        table = warehouse.query(connection, "from published.lists")
    assert pl.read_parquet(home.published / "lists.parquet").equals(table)
    found = defaultdict(list)
    for row in table.sort("list", "window_days", "rank").iter_rows(named=True):
        found[row["list"], row["window_days"], *([row["category"]] if row["category"] else [])].append(row)
    return dict(found)


def recount_lists(events, days, length):
    """The lists of a window by their definitions: (user, item, value, time) of all likes, in the order of the log."""
    last, log_start = max(event[3] for event in events if event[2] >= 4), min(event[3] for event in events)
    start = last - timedelta(days=days)
    first, latest, appeared, order = {}, {}, {}, {}
    for user, item, value, time in events:
        appeared[item] = min(appeared.get(item, time), time)
        if value >= 4:
            first[user, item] = min(first.get((user, item), time), time)
            latest[user, item] = max(latest.get((user, item), time), time)
            order.setdefault(item, len(order))
    users, popular = Counter(item for _, item in latest), Counter(i for (_, i), time in latest.items() if time > start)
    times_of, trends = defaultdict(list), []
    for (_, item), time in first.items():
        times_of[item].append(time)
    for item in order:
        times = sorted(times_of[item])
        n, x = len(times) - 1, sum(time > start for time in times)
        since = sum(time >= times[0] for time in first.values()) - 1
        share = sum(time > start for time in first.values()) / since if since else 1
        if times[0] <= start and n >= 5:
            tail = sum(comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(x, n + 1))
            expected = (n - x) * share / (1 - share)
            trends.append([item, x, expected, (x + 5) / (expected + 5), min(tail, 1)])
    trends.sort(key=lambda trend: -trend[4])
    corrected = 1
    for rank, trend in zip(range(len(trends), 0, -1), trends, strict=True):
        corrected = trend[4] = min(corrected, trend[4] * len(trends) / rank)
    trends = [trend for trend in trends if trend[4] <= 0.05]
    best = sorted((item for item in order if popular[item]), key=lambda item: (-popular[item], order[item]))
    new = [item for item in order if appeared[item] > start >= log_start]
    return {
        "popular": [(item, popular[item]) for item in best][:length],
        "trending": sorted(trends, key=lambda trend: (-trend[3], -trend[1], order[trend[0]]))[:length],
        "new": sorted(
            ((item, users[item], (last - appeared[item]) / timedelta(days=1)) for item in new),
            key=lambda one: (one[2], -one[1], order[one[0]]),
        )[:length],
    }


def draw_events(seed):
    """Ratings of a growing catalogue, with repeats, and one item that everybody wants of late."""
    random, events = np.random.default_rng(seed), []
    for _ in range(1500):
        day = 60 * random.random() ** 0.7
        item = int(random.zipf(1.3)) % max(3, int(40 * day / 60))
        item = 20 if day > 57 and random.random() < 0.3 else item
        time = START + timedelta(seconds=int(day * 86400))
        events.append((f"u{random.integers(400)}", f"i{item}", float(random.integers(3, 6)), time))
    return events


@pytest.mark.parametrize("seed", range(3))
def test_lists_are_those_of_a_recount(home, log_events, seed):
    log_events(events := draw_events(seed))
    binarize(home, BinarizeSettings(threshold=4), "run")
    found = store_lists(home)
    assert found["trending", 3][0]["item_id"] == "i20" and len(found["new", 20]) > 3
    for days in WINDOWS:
        expected = recount_lists(events, days, LENGTH)
        of = {name: found.get((name, days), []) for name in ("popular", "trending", "new")}
        for name, rows in of.items():
            assert [row["item_id"] for row in rows] == [one[0] for one in expected[name]], (name, days)
            assert [row["users"] for row in rows] == [one[1] for one in expected[name]]
        assert [row["value"] for row in of["popular"]] == [one[1] for one in expected["popular"]]
        assert [row["value"] for row in of["new"]] == pytest.approx([one[2] for one in expected["new"]])
        for row, (_, _, expected_users, trend, p_value) in zip(of["trending"], expected["trending"], strict=True):
            assert (row["expected_users"], row["value"]) == pytest.approx((expected_users, trend))
            assert row["p_value"] == pytest.approx(p_value, rel=1e-6)


def test_categories_have_lists_of_their_own(home, tmp_path):
    """i0 and i2 are in `a`, i1 and i2 in `b`, the department of i1 is `c`; i3 has no category."""
    table = "item_id,department,genres\ni0,,a\ni1,c,b\ni2,,a| b\ni3,,\n"
    log = "user_id,item_id\n" + "".join(f"u{user},i{item}\n" for item in range(4) for user in range(5 - item))
    ingest_with_items(home, tmp_path, log, table, category=["department"], categories=["genres"])
    binarize(home, BinarizeSettings(), "run")
    found = {key: [row["item_id"] for row in rows] for key, rows in store_lists(home).items()}
    assert found == {
        ("popular", None): ["i0", "i1", "i2", "i3"],
        ("popular", None, "a"): ["i0", "i2"],
        ("popular", None, "b"): ["i1", "i2"],
        ("popular", None, "c"): ["i1"],
    }
    rules = Rules(banned=["i0"], eligible="coalesce(department, 'none') <> 'c' or history.items > 0")
    obeying = store_lists(home, declared=DeclaredRules(rules=rules))
    found = {key: [row["item_id"] for row in rows] for key, rows in obeying.items()}
    assert found == {("popular", None): ["i2", "i3"], ("popular", None, "a"): ["i2"], ("popular", None, "b"): ["i2"]}


def test_lists_have_the_titles_of_their_items_and_of_those_that_explain_them(by_model):
    titles = {f"i{item}": f"Item, the {item}th" for item in range(30)}
    lists = pl.read_parquet(by_model[0].published / "recommendations.parquet")
    assert len(lists.filter(pl.col("because").list.len() > 0))
    for row in lists.iter_rows(named=True):
        items = [row["item_id"], *(row["because"] or [])]
        assert [row["title"], *(row["because_titles"] or [])] == [titles.get(item) for item in items]


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """A home whose publication has lists of all kinds, and what answers from it; i20 is wanted of late."""
    folder = tmp_path_factory.mktemp("listed")
    (home := home_in(folder)).root.mkdir()
    (home.root / "titles.csv").write_text("item_id,title\ni20,Twenty\n")
    log = "user_id,item_id,value,time\n" + "".join("{},{},{},{}\n".format(*event) for event in draw_events(0))
    table = "item_id,genre\n" + "".join(f"i{item},{'ab'[item % 2]}\n" for item in range(40))
    ingest_with_items(home, folder, log, table, category=["genre"])
    digests = split_likes(home, "leave_one_out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "WINDOWS", (5, 30))
        patch.setattr(files, "LIST_LENGTH", 6)
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
    assert shop.list_items("trending", window_days=5).select("item_id", "title").rows() == [("i20", "Twenty")]
    assert shop.list_items("trending", category="b", window_days=5).is_empty()
    assert set(table["list"]) == {"popular", "trending", "new"}


def test_a_history_without_a_known_item_gets_the_popular_list_and_then_the_items_of_all_times(listed):
    _, shop = listed
    of_window = shop.list_items("popular")["item_id"].to_list()
    of_all_times = shop.items.sort("users", descending=True, maintain_order=True)["item_id"].to_list()
    expected = of_window + [item for item in of_all_times if item not in of_window]
    assert len(of_window) == 6 and expected != of_all_times
    with pytest.warns(UserWarning, match="not known"):
        assert shop.recommend(["unheard of"], 40)["item_id"].to_list() == expected
    many = shop.recommend_many(pl.DataFrame({"user_id": ["new", "known"], "item_id": ["unheard of", "i1"]}), 40)
    assert many.filter(user_id="new")["item_id"].to_list() == expected
    assert many.filter(user_id="known")["item_id"].to_list() == shop.recommend(["i1"], 40)["item_id"].to_list()
    assert shop.recommend([], 40, without=expected[:2])["item_id"].to_list() == expected[2:]


def test_what_is_not_there_is_refused_with_what_is(listed, by_model):
    untimed = by_model[1]["wmf"]
    for shop, message, arguments in (
        (listed[1], "list best: does not exist; the lists are popular, trending, new", {"name": "best"}),
        (listed[1], "list new: is of all items only", {"name": "new", "category": "a"}),
        (listed[1], "category c: .* Categories: a, b", {"name": "popular", "category": "c"}),
        (listed[1], "window 7: lists are published for 5, 30 days", {"name": "new", "window_days": 7}),
        (untimed, "list trending: takes the times of events", {"name": "trending"}),
        (untimed, "Categories: none; name columns of", {"name": "popular", "category": "a"}),
    ):
        with pytest.raises(InputError, match=message):
            shop.list_items(**arguments)
    with pytest.raises(ValueError, match="n = 0"):
        untimed.list_items("popular", 0)
    users = untimed.items["users"].sort(descending=True)[:9].to_list()
    assert untimed.list_items("popular", 9)["users"].to_list() == users


def test_the_command_and_http_answer_alike(listed, capsys):
    home, shop = listed
    arguments = ["--dataset", "small", "--home", str(home.root), "--list", "popular", "--n", "3"]
    expected = shop.list_items("popular", 3, window_days=5).to_dicts()
    assert commands.main("recommend", [*arguments, "--window-days", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == expected
    assert commands.main("recommend", arguments) == 0
    assert "popular items" in capsys.readouterr().out
    ask = Asker(home)
    for path in ("/popular", "/lists/popular"):
        answer = ask("GET", path, params={"window_days": 5, "n": 3})
        assert answer.json() == {"dataset": "small", "publication": "run", "next": None, "items": expected}
    assert ask("GET", "/lists/popular", params={"category": "c"}).status_code == 404
