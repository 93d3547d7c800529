"""Published lists, and every way to ask, obey the rules, by a plain reading; the contract sees each breach."""

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from oneclass.data_contracts import check, for_stage
from oneclass.flows import commands
from oneclass.models.reranking import project_items
from oneclass.tasks.attributes import load_all_attributes
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.explain.explanation import explain_user
from oneclass.tasks.recommend import load
from oneclass.tasks.rules.lists import find_breaches
from oneclass.tasks.rules.settings import DeclaredRules, Placement, Rules
from oneclass.tasks.stores import matrices, runs, warehouse
from tests.conftest import home_in, query_rows
from tests.tasks.rules.conftest import CASES, DECLARED, EVERYWHERE, ITEMS, RULES, TOP_N, draw_shop, is_eligible
from tests.tasks.rules.oracle import RuleCase
from tests.tasks.serve.test_list_routes import Asker


def lists_of(frame, user_id):
    return frame.filter(pl.col("user_id") == user_id).sort("rank")["item_id"].to_list()


def test_published_lists_and_every_way_to_ask_from_python_obey_the_rules(ruled):
    shop, recommender = ruled
    general, placed = (
        pl.read_parquet(shop.home.published / f"{name}.parquet") for name in ("recommendations", "placements")
    )
    assert {None, *placed["placement"]} == set(CASES)
    for placement, case in CASES.items():
        published = placed.filter(placement=placement) if placement else general
        n = None if placement else case.n
        many = recommender.recommend_many(recommender.users, n=n, placement=placement)
        for user_id in shop.user_ids:
            expected = shop.expect(case, user_id)
            assert lists_of(published, user_id) == lists_of(many, user_id) == expected, (user_id, placement)
            asked = recommender.recommend_for(user_id, n, placement=placement)
            assert asked["item_id"].to_list() == expected
            assert set(asked.filter(mark="pinned")["item_id"]) == {"i7", "i3"} & set(expected)
    pinned = general.filter((pl.col("rank") == 1) & pl.col("item_id").is_in(["i7", "i3"]))
    assert len(pinned) > 10 and general["item_id"].n_unique() > 8


def test_filters_narrow_what_rules_allow(ruled):
    shop, recommender = ruled
    within, without = shop.item_ids[:20], shop.item_ids[5:9]
    for filters, condition in (
        ({"where": "genre in ('jazz', 'folk')"}, lambda item, user: item["genre"] in ("jazz", "folk")),
        ({"where": "history.users > history.items"}, lambda item, user: item["history.users"] > user["history.items"]),
        ({"within": within, "without": without}, lambda item, user: item["item_id"] in set(within) - set(without)),
    ):
        case = replace(EVERYWHERE, conditions=[*EVERYWHERE.conditions, condition])
        many = recommender.recommend_many(recommender.users, TOP_N, **filters) if "where" in filters else None
        for user_id in shop.user_ids:
            expected = shop.expect(case, user_id)
            assert recommender.recommend_for(user_id, TOP_N, **filters)["item_id"].to_list() == expected
            assert many is None or lists_of(many, user_id) == expected


def test_an_empty_history_gets_popular_items_that_the_rules_allow(ruled):
    shop, recommender = ruled
    stranger = {"age": None, "plan": None, "history.items": 0}
    nothing = recommender.names.history(np.empty(0, dtype=np.int32))
    popular = recommender.fitted.scores(nothing, score=recommender.score)
    assert popular.argmax() == max(range(len(popular[0])), key=lambda item: shop.shop.items[item]["history.users"])
    asking = replace(shop.shop, users=[stranger], histories=[set()], excluded=[set()], scores=popular)
    for placement, case in CASES.items():
        listed = recommender.recommend([], n=case.n, placement=placement)["item_id"].to_list()
        assert listed == shop.expect(case, shop.user_ids[0], asking) and listed


def test_the_command_and_http_obey_them(ruled, capsys):
    shop, recommender = ruled
    user_id, jazz = shop.user_ids[5], "genre = 'jazz'"
    arguments = ["--dataset", "small", "--home", str(shop.home.root), "--user", user_id, "--json"]
    ask = Asker(shop.home)
    for query in ({}, {"placement": "home"}, {"where": jazz}):
        expected = recommender.recommend_for(user_id, **query)["item_id"].to_list()
        flags = [word for name, value in query.items() for word in (f"--{name}", value)]
        assert commands.main("recommend", [*arguments, *flags]) == 0
        answer = ask("GET", "/recommend", params={"user": user_id, **query})
        for found in (json.loads(capsys.readouterr().out), answer.json()):
            assert [item["item_id"] for item in found["items"]] == expected
    for query, message in (
        ({"placement": "hone"}, "does not exist; known: home"),
        ({"where": "stock > 0"}, "may not name the column stock, only those of `request_filters`"),
        ({"where": "stock > 0 or " * 100 + "adult"}, "where: has 1,305 characters, more than 1,000"),
    ):
        answer = ask("GET", "/recommend", params={"user": user_id, **query})
        assert answer.status_code == 400 and message in answer.json()["detail"]


AGAIN = DeclaredRules(rules=Rules(again_after_days=7.5))


@pytest.fixture(scope="module")
def again(built, tmp_path_factory):
    """(shop, recommender) of a publication with seen items that come again only after days."""
    shop = built.copy_to(home_in(tmp_path_factory.mktemp("again")))
    return shop, shop.publish("again", AGAIN, exclude_seen=False)


def test_items_come_again_only_after_days(again):
    shop, recommender = again
    last_day = max((user + item) % 20 for user, item in shop.bought)
    recent = [set() for _ in shop.user_ids]
    for user, item in shop.bought:
        if (user + item) % 20 > last_day - 7.5:
            recent[shop.user_ids.index(f"u{user}")].add(shop.item_ids.index(f"i{item}"))
    case, readable = RuleCase(AGAIN.rules, None, TOP_N, [], []), replace(shop.shop, excluded=recent)
    lists = pl.read_parquet(shop.home.published / "recommendations.parquet")
    seen_again = 0
    for user_id in shop.user_ids:
        expected = shop.expect(case, user_id, readable, exclude_seen=False)
        assert lists_of(lists, user_id) == expected
        assert recommender.recommend_for(user_id, TOP_N)["item_id"].to_list() == expected
        seen_again += len(set(expected) & set(recommender.history(user_id)))
    assert seen_again > 20
    history = recommender.history(shop.user_ids[0])
    assert not set(recommender.recommend(history, n=ITEMS)["item_id"]) & set(history)  # whose times are unknown


def test_lists_are_made_anew_where_an_attribute_or_the_rules_change(shop):
    shop.publish("first")
    sold_out = shop.expect(EVERYWHERE, "u2")[-1]
    drawn = draw_shop()
    drawn.items[int(sold_out[1:])]["stock"] = 0
    shop.store(drawn)
    recommender = shop.publish("sold out")
    lists = pl.read_parquet(shop.home.published / "recommendations.parquet")
    assert sold_out not in lists["item_id"] and sold_out not in recommender.recommend_for("u2", ITEMS)["item_id"]
    assert shop.publish("no rules", DeclaredRules()).rules.declared.are_empty
    assert not (shop.home.published / "placements.parquet").exists()
    assert query_rows(shop.home, "from published.placements") == []


def test_an_explanation_names_the_rule_that_decides(shop):
    with runs.record_run(shop.home, "run", "backfill", {}):
        shop.publish("run")
    lists, told = pl.read_parquet(shop.home.published / "recommendations.parquet"), Counter()
    for place, (user_id, user) in enumerate(zip(shop.user_ids[:8], shop.shop.users, strict=False)):
        listed = lists_of(lists, user_id)
        explained = explain_user(shop.home, user_id, item_ids=shop.item_ids).rank_explanations
        for column, (item, said) in enumerate(zip(shop.shop.items, explained, strict=True)):
            item_id = item["item_id"]
            if item_id in listed:
                pinned = ", pinned by the rules" if item_id in ("i7", "i3") else ""
                assert said.startswith(f"{item_id}: rank {listed.index(item_id) + 1} of ")
                assert f"for {user_id}{pinned}, by mrf_dense/score" in said
                continue
            reasons = {
                "banned names it": item_id == "i1",
                f"not eligible: [rules] eligible = {RULES.eligible!r}": not is_eligible(item, user),
                "not_event keeps it from them": column in shop.shop.excluded[place],
                "they like it already": column in shop.shop.histories[place],
            }
            assert {reason: reason in said for reason in reasons} == reasons
            told.update(reason for reason, is_told in reasons.items() if is_told)
            if not any(reasons.values()):
                by_limit = "as [rules] max_per_category allows" in said
                assert (by_limit and item["tags"]) or f"last of the {len(listed)} published" in said
                told["limit"] += by_limit
    assert told.keys() == {*reasons, "limit"} and all(told.values())


@pytest.mark.parametrize(
    ("name", "eligible", "message"),
    [
        ("0i{}", "stock > 0", "0 of the 30 items that users like are in its table"),
        ("i{}", "stock > 100", "[rules] eligible = 'stock > 100': allows 0 of 30 items"),
    ],
)
def test_rules_that_reach_no_item_publish_nothing(shop, name, eligible, message):
    drawn = draw_shop()
    shop.publish("before")
    lists = "select user_id, item_id, rank from published.recommendations order by all"
    before = query_rows(shop.home, lists)
    for number, item in enumerate(drawn.items):
        item["item_id"] = name.format(number)
    shop.store(drawn)
    with pytest.raises(OneclassError, match=re.escape(message)) as refused:
        shop.publish("refused", DeclaredRules(rules=Rules(eligible=eligible)))
    assert refused.value.exit_status == 1 and load(shop.home.root, "small").publication == "before"
    assert query_rows(shop.home, lists) == before != []


def test_items_that_the_table_lacks_and_empty_placements_are_told(shop):
    drawn = draw_shop()
    for number, item in enumerate(drawn.items):
        item.update({"undescribed": number % 2 == 1, "stock": 5})
    shop.store(drawn)
    declared = DeclaredRules(rules=Rules(eligible="stock > 0"), placements={"tea": Placement(eligible="genre = 'tea'")})
    shop.publish("half", declared)
    alarms = "select alarm from operations.alarms where run_id = ? order by rowid"
    (placement,), (catalogue,) = query_rows(shop.home, alarms, "half")
    assert "[placements.tea]: its rules allow no item" in placement
    assert "lacks 15 of the 30 items that users like" in catalogue


VARIED = Rules(eligible="stock > 0", pinned=["i7"], max_per_category={"tags": 3})


def test_lists_are_less_alike_the_stronger(shop):
    """That they obey the rules, the contract of the publication checks."""
    placements = {f"level{level}": Placement(diversity=level / 10) for level in (0, 5, 9)} | {"plain": Placement()}
    recommender = shop.publish("varied", DeclaredRules(rules=VARIED, placements=placements))
    placed = pl.read_parquet(shop.home.published / "placements.parquet")
    by_placement = {name: rows for (name,), rows in placed.partition_by("placement", as_dict=True).items()}
    columns = ["user_id", "rank", "item_id", "score"]
    assert by_placement["level0"].select(columns).equals(by_placement["plain"].select(columns))
    projected = project_items(matrices.load_split(shop.home, shop.digest).train)
    vectors = dict(zip(shop.item_ids, projected, strict=True))

    def measure_likeness(placement):
        lists = [lists_of(by_placement[placement], user_id) for user_id in shop.user_ids]
        of_lists = [np.stack([vectors[item_id] for item_id in listed]) for listed in lists]
        return np.mean([(one @ one.T)[np.triu_indices(len(one), 1)].mean() for one in of_lists])

    assert measure_likeness("plain") > measure_likeness("level5") > measure_likeness("level9")
    many = recommender.recommend_many(recommender.users, placement="level5")
    for user_id in shop.user_ids:
        asked = recommender.recommend_for(user_id, placement="level5")["item_id"].to_list()
        assert asked == lists_of(many, user_id) == lists_of(by_placement["level5"], user_id)


LISTS = "published.recommendations"
ATTRIBUTE = "(select id from raw.attributes where side = 'item' and name = '{}' and value = '{}' order by id limit 1)"

# the rule: (rules, the change of the lists or the log that breaks it)
BREACHES = {
    "eligible": (DECLARED, f"update {LISTS} set item_id = {ATTRIBUTE.format('stock', 0)} where rank = 2"),
    "eligible of a placement": (
        DECLARED,
        f"update published.placements set item_id = {ATTRIBUTE.format('price', 10.0)} where placement = 'home'",
    ),
    "not_banned": (DECLARED, f"update {LISTS} set item_id = 'i1' where (rank, user_id) = (3, 'u3')"),
    "pinned_first": (DECLARED, f"update {LISTS} set rank = 3 - rank where rank < 3"),
    "max_per_category": (
        DECLARED,
        f"update published.placements set item_id = {ATTRIBUTE.format('genre', 'Rock')} where placement = 'home'",
    ),
    "not_event": (DECLARED, f"insert into raw.events select user_id, item_id, -1, null, 1, 999, 'return' from {LISTS}"),
    "again_after_days": (AGAIN, "update indexed.interactions set last_at = timestamp '2026-01-20'"),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_each_breach_stops_the_publication_and_names_the_list(ruled, again, breach):
    declared, change = BREACHES[breach]
    rule = breach.split()[0]
    shop, _ = again if declared is AGAIN else ruled
    parameters = {"run_id": "run", "top_n": TOP_N, "has_rules": True, "pinned": list(RULES.pinned)}
    with warehouse.open_warehouse(shop.home) as connection:
        connection.begin()
        broken = []
        for statement in ("select 1", change):
            connection.execute(statement)
            find_breaches(connection, declared, load_all_attributes(connection), TOP_N)
            results = check(connection, for_stage("publish"), parameters)
            broken.append([one for one in results if one.rule == rule and not one.success])
        connection.rollback()
    [[], [result]] = broken
    assert result.severity == "error"
    if rule == "not_banned":
        assert result.samples == [{"rule": rule, "placement": None, "user_id": "u3", "item_id": "i1", "rank": 3}]
