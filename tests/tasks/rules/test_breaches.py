"""The contract of rules sees each breach in the published lists."""

import pytest

from oneclass.data_contracts import check
from oneclass.tasks.attributes import load_all_attributes
from oneclass.tasks.rules.breaches import find_breaches
from oneclass.tasks.rules.settings import DeclaredRules, Rules
from oneclass.tasks.stores import warehouse
from tests.conftest import home_in
from tests.tasks.rules.test_lists import DECLARED, RULES, TOP_N

AGAIN = DeclaredRules(rules=Rules(again_after_days=7.5))
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


@pytest.fixture(scope="module")
def shops(built, tmp_path_factory):
    """A shop for each set of rules, with its lists published."""
    shops = {}
    for number, declared in enumerate((DECLARED, AGAIN)):
        shop = built.copy_to(home_in(tmp_path_factory.mktemp(f"shop{number}")))
        shop.publish("run", declared, exclude_seen=declared is not AGAIN)
        shops[declared.model_dump_json()] = shop
    return shops


@pytest.mark.parametrize("breach", BREACHES)
def test_each_breach_stops_the_publication_and_names_the_list(shops, breach):
    declared, change = BREACHES[breach]
    rule = breach.split()[0]
    with warehouse.open_warehouse(shops[declared.model_dump_json()].home) as connection:
        connection.begin()
        assert find_broken_rule(connection, declared, rule) is None
        connection.execute(change)
        result = find_broken_rule(connection, declared, rule)
        connection.rollback()
    assert result.severity == "error"
    if rule == "not_banned":
        assert result.samples == [{"rule": rule, "placement": None, "user_id": "u3", "item_id": "i1", "rank": 3}]


def find_broken_rule(connection, declared, rule):
    find_breaches(connection, declared, load_all_attributes(connection), TOP_N)
    parameters = {"run_id": "run", "top_n": TOP_N, "has_rules": True, "pinned": list(RULES.pinned)}
    results = check(connection, "publish", parameters)
    return next((one for one in results if one.rule == rule and not one.success), None)
