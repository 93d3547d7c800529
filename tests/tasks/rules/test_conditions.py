"""Conditions of rules and the lists that they leave: what is admitted, and what it comes to in plain Python."""

import random

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


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_conditions_mean_the_same_in_python(seed):
    generator = random.Random(seed)
    shop = oracle.draw_shop(generator, items=30, users=3)
    text, condition = oracle.draw_condition(generator, 3)
    attributes = {side: shop.build_table(side) for side in ("item", "user")}
    ids, users = ([row[name] for row in shop.items] for name in ("item_id", "history.users"))
    catalogue = Catalogue(pl.Series(ids), pl.Series(users), attributes)
    names, counts = ([person[name] for person in shop.users] for name in ("user_id", "history.items"))
    people = catalogue.describe_users(pl.Series(names), pl.Series(counts)).to_dict(as_series=False)
    checked = catalogue.check_condition(text, "where")
    found = catalogue.find_items(checked, people).tolist()
    expected = [[condition(item, person) is True for item in shop.items] for person in shop.users]
    assert found == (expected if checked.user_columns else expected[:1]), text


REFUSED = {
    "": "is empty",
    "stock >": "is no SQL condition",
    "stock > 0; drop table item": "is no SQL condition",
    "stock > 0) limit (1": "is more than a condition",
    "stock > (select 1)": "has a part that rules do not know (subquery)",
    "case when adult then true else false end": "has a part that rules do not know (case)",
    "random() > 0.5": "has the function random",
    "stock > ?": "is more than a condition",
    "sum(stock) > 1": "has the function sum",
    "length(genre order by (select 1)) > 1": "has a part that rules do not know (subquery)",
    "length(stock) > 1": "No function matches the given name and argument types 'length(DOUBLE)'",
    "read_csv('/etc/passwd') is null": "has the function read_csv",
    "sum(stock) over () > 1": "has a part that rules do not know (window)",
    "genre": "is a VARCHAR, not a condition; write a comparison",
    "stock > 'x'": "Could not convert string 'x' to DOUBLE",
    "stock = null": "compares with null; write `is null`",
    "tags = 'x'": "For a column with several values write `'VALUE' in COLUMN`",
    "released > 'tomorrow'": "expected format is (YYYY-MM-DD",
    "genre > 5": "Cannot compare values of type VARCHAR and type INTEGER",
    "user.agee > 3": "column user.agee: does not exist; did you mean user.age?",
    "not " * 150 + "adult": "is nested too deep",
    "- " * 450 + "stock > 1": "is nested too deep",
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


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_lists_are_those_of_a_plain_reading_of_the_rules(seed, exclude_seen):
    generator = random.Random(seed)
    shop = oracle.draw_shop(generator, items=generator.choice([1, 12, 40]), users=12)
    case = oracle.draw_case(generator, len(shop.items))
    for user, chosen in enumerate(oracle.select_all(shop, case, exclude_seen=exclude_seen)):
        allowed = oracle.list_allowed_items(shop, case, user, exclude_seen=exclude_seen)
        assert chosen == oracle.select_naively(shop, case, user, allowed), case


WRONG = {
    "[rules] eligible = 'stok > 0': column stok: does not exist; did you mean stock?": Rules(eligible="stok > 0"),
    "[rules] boosts, number 2, when = 'stock': is a DOUBLE, not a condition": Rules(
        boosts=[{"when": "adult", "by": 1}, {"when": "stock", "by": 1}]
    ),
    "[rules] max_per_category: stock is no column of texts in the table of items; such are": Rules(
        max_per_category={"stock": 1}
    ),
    "[rules] request_filters: column stok does not exist; known: item_id, stock": Rules(request_filters=["stok"]),
    "declare one under [items]": Rules(eligible="stock > 0"),
    "declare one under [users]": Rules(eligible="user.age > 3"),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_rules_are_refused_with_their_key(message):
    with pytest.raises(InputError) as refused:
        check_rules(DeclaredRules(rules=WRONG[message]), {} if "declare one" in message else EMPTY)
    assert message in str(refused.value)
