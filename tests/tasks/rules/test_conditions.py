"""Conditions of rules and the lists that they leave: what is admitted, and what it comes to in plain Python."""

import random
import re

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneclass.tasks.errors import InputError
from oneclass.tasks.rules.conditions import Catalogue, Condition
from oneclass.tasks.rules.lists import check_rules
from oneclass.tasks.rules.settings import DeclaredRules, Rules
from tests.tasks.rules import oracle

EMPTY = {"item": pl.DataFrame(schema=oracle.ITEM_TYPES), "user": pl.DataFrame(schema=oracle.USER_TYPES)}
CATALOGUE = Catalogue(pl.Series(["i1"]), pl.Series([1]), EMPTY)


REFUSED = {
    "": "is empty",
    "stock > 0) limit (1": "is more than a condition",
    "stock > (select 1)": "has a part that rules do not know (subquery)",
    "stock > ?": "is more than a condition",
    "sum(stock) > 1": "has the function sum",
    "read_csv('/etc/passwd') is null": "has the function read_csv",
    "genre": "is a VARCHAR, not a condition; write a comparison",
    "stock > 'x'": "Could not convert string 'x' to DOUBLE",
    "stock = null": "compares with null; write `is null`",
    "tags = 'x'": "For a column with several values write `'VALUE' in COLUMN`",
    "genre > 5": "Cannot compare values of type VARCHAR and type INTEGER",
    "not " * 150 + "adult": "is nested too deep",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_condition_on_known_columns_is_refused(text):
    with pytest.raises(InputError) as refused:
        condition = CATALOGUE.check_condition(text, "[rules] eligible")
        CATALOGUE.find_items(condition, {name: [None] for name in CATALOGUE.user_types})
    assert str(refused.value).startswith(f"[rules] eligible = {text!r}: ") and REFUSED[text] in str(refused.value)


def test_not_even_an_unchecked_condition_reads_a_file(tmp_path):
    (tmp_path / "secret").write_text("x")
    reading = f"(select count(*) from read_text('{tmp_path}/secret')) > 0"
    with pytest.raises(InputError, match="disabled by configuration"):
        CATALOGUE.find_items(Condition("where", reading, reading, (), ()), {})


def test_a_name_is_the_items_column_unless_it_begins_with_user():
    items = pl.DataFrame({"item_id": ["i1", "i2"], "country": ["DE", "AT"], "price.eur": [1, 2]})
    users = pl.DataFrame({"user_id": ["u1", "u2"], "country": ["AT", None], "tags": [["x"], None]})
    catalogue = Catalogue(pl.Series(["i1", "i2", "i3"]), pl.Series([1, 1, 0]), {"item": items, "user": users})
    people = catalogue.describe_users(pl.Series(["u1", "u2"]), pl.Series([1, 1])).to_dict(as_series=False)
    expected = {
        "country = user.country": [[False, True, False], [False] * 3],
        "Country = 'DE'": [[True, False, False]],
        '"price.eur" > 1 or price.eur < 1': [[False, True, False]],
        "'x' in user.tags and history.users > 0": [[True, True, False], [False] * 3],
        "coalesce(lower(country), 'x') = 'de' or starts_with(country, 'A')": [[True, True, False]],
    }
    for text, found in expected.items():
        assert catalogue.find_items(catalogue.check_condition(text, "where"), people).tolist() == found


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_lists_are_those_of_a_plain_reading_of_the_rules(seed, exclude_seen):
    generator = random.Random(seed)
    shop = oracle.draw_shop(generator, items=generator.choice([1, 12, 40]), users=12)
    text, condition = oracle.draw_condition(generator, 3)
    all_eligible = oracle.RuleCase(Rules(eligible=text), None, len(shop.items), [condition], [])
    for case in (oracle.draw_case(generator, len(shop.items)), all_eligible):
        for user, chosen in enumerate(oracle.select_all(shop, case, exclude_seen=exclude_seen)):
            allowed = oracle.list_allowed_items(shop, case, user, exclude_seen=exclude_seen)
            assert chosen == oracle.select_naively(shop, case, user, allowed), case


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"eligible": "stok > 0"}, "[rules] eligible = 'stok > 0': column stok: does not exist; did you mean stock?"),
        ({"boosts": [{"when": "adult", "by": 1}, {"when": "stock", "by": 1}]}, "[rules] boosts, number 2, when = "),
        ({"max_per_category": {"stock": 1}}, "[rules] max_per_category: stock is no column of texts in the table"),
        ({"request_filters": ["stok"]}, "[rules] request_filters: column stok does not exist; known: item_id, stock"),
        ({"eligible": "stock > 0"}, "declare one under [items]"),
        ({"eligible": "user.age > 3"}, "declare one under [users]"),
    ],
)
def test_wrong_rules_are_refused_with_their_key(rules, message):
    with pytest.raises(InputError, match=re.escape(message)):
        check_rules(DeclaredRules(rules=Rules(**rules)), {} if "declare one" in message else EMPTY)
