"""Placements with `diversity`: their lists are less alike, obey the rules, and are the same however asked."""

import json

import numpy as np
import polars as pl
import pytest

from oneclass.flows import commands
from oneclass.models.reranking import project_items
from oneclass.tasks.rules.settings import DeclaredRules, Placement, Rules
from oneclass.tasks.stores import matrices
from tests.conftest import home_in
from tests.tasks.rules.test_lists import lists_of

RULES = Rules(eligible="stock > 0", pinned=["i7"], max_per_category={"tags": 3})


@pytest.fixture(scope="module")
def varied(built, tmp_path_factory):
    """(shop, recommender) of a publication with the same placement without variety, with some and with most."""
    shop = built.copy_to(home_in(tmp_path_factory.mktemp("varied")))
    placements = {f"level{level}": Placement(diversity=level / 10) for level in (0, 5, 9)}
    return shop, shop.publish("varied", DeclaredRules(rules=RULES, placements=placements | {"plain": Placement()}))


def test_lists_are_less_alike_the_stronger_and_obey_the_rules(varied):
    shop, _ = varied
    placed = pl.read_parquet(shop.home.published / "placements.parquet")
    by_placement = {name: rows for (name,), rows in placed.partition_by("placement", as_dict=True).items()}
    columns = ["user_id", "rank", "item_id", "score"]
    assert by_placement["level0"].select(columns).equals(by_placement["plain"].select(columns))
    vectors = project_items(matrices.load_split(shop.home, shop.digest).train)
    items = {item["item_id"]: item for item in shop.shop.items}
    similarity = {}
    for name, rows in by_placement.items():
        alike = []
        for user_id in shop.user_ids:
            listed = lists_of(rows, user_id)
            of_list = vectors[[shop.item_ids.index(item_id) for item_id in listed]]
            alike.append((of_list @ of_list.T)[np.triu_indices(len(listed), 1)].mean())
            assert all(items[item_id]["stock"] > 0 for item_id in listed)
            tags = [tag for item_id in listed for tag in set(items[item_id]["tags"] or [])]
            assert all(tags.count(tag) <= 3 for tag in tags)
            assert "i7" not in listed or listed[0] == "i7"
        similarity[name] = np.mean(alike)
    assert similarity["plain"] > similarity["level5"] > similarity["level9"]


def test_python_and_the_command_answer_as_published(varied, capsys):
    shop, recommender = varied
    placed = pl.read_parquet(shop.home.published / "placements.parquet").filter(pl.col("placement") == "level5")
    many = recommender.recommend_many(recommender.users, placement="level5")
    for user_id in shop.user_ids:
        expected = lists_of(placed, user_id)
        assert recommender.recommend_for(user_id, placement="level5")["item_id"].to_list() == expected
        assert lists_of(many, user_id) == expected
    arguments = ["--dataset", "small", "--home", str(shop.home.root), "--user", user_id, "--placement", "level5"]
    assert commands.main("recommend", [*arguments, "--json"]) == 0
    assert [item["item_id"] for item in json.loads(capsys.readouterr().out)["items"]] == expected
