"""Conditions of rules: what is admitted, and what it evaluates to here, in DuckDB and in plain Python."""

import random

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneclass.tasks.errors import InputError
from oneclass.tasks.rules.expressions import check_expression, normalize_types
from oneclass.tasks.rules.selection import Catalogue
from tests.tasks.rules import oracle

ITEMS = pl.DataFrame(schema=oracle.ITEM_TYPES)
USERS = pl.DataFrame(schema=oracle.USER_TYPES)
NOTHING = pl.Series([], dtype=pl.String)
CATALOGUE = Catalogue(NOTHING, NOTHING.cast(pl.Int64), {"item": ITEMS, "user": USERS})


def check_text(text):
    return check_expression(text, "[rules] eligible", CATALOGUE.item_kinds, CATALOGUE.user_kinds)


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_conditions_mean_the_same_here_in_duckdb_and_in_python(connection, seed):
    generator = random.Random(seed)
    shop = oracle.draw_shop(generator, items=30, users=3)
    text, condition = oracle.draw_condition(generator, 3)
    rows = [{name: row[name] for name in (*oracle.ITEM_TYPES, "history.users")} for row in shop.items]
    items = normalize_types(pl.DataFrame(rows, schema={**oracle.ITEM_TYPES, "history.users": pl.Int64}))
    expression = check_text(text)
    for person in shop.users:
        expected = [condition(item, person) is True for item in shop.items]
        values = {f"user.{name}": person[name] for name in oracle.USER_TYPES}
        values["history.items"] = person["history.items"]
        assert expression.evaluate(items, values).to_list() == expected, text
        user = pl.DataFrame([person], schema={**oracle.USER_TYPES, "history.items": pl.Int64})
        connection.register("item", items).register("person", user)
        query = f'select ({expression.sql}) is true from item cross join person as "user"'
        assert [truth for (truth,) in connection.execute(query).fetchall()] == expected, text


REFUSED = {
    "": "is empty",
    "stock >": "is no SQL condition",
    "stock > 0; drop table item": "is no SQL condition",
    "stock > 0) limit (1": "is more than a condition",
    "stock > (select 1)": "has a part that rules do not know (subquery)",
    "stock::varchar = 'x'": "has a part that rules do not know (cast)",
    "sum(stock) > 1": "has the function sum",
    "length(genre order by (select 1)) > 1": "has more than arguments in length",
    "length(genre) filter (where true) > 1": "has more than arguments in length",
    "length(stock) > 1": "length does not take column stock, a number",
    "read_csv('/etc/passwd') is null": "has the function read_csv",
    "sum(stock) over () > 1": "has a part that rules do not know (window)",
    "genre || 'x' = 'y'": "has the function ||",
    "stock > 'x'": "compares column stock, a number, with 'x', a text",
    "stock = null": "compares with null; write `is null`",
    "tags = 'x'": "compares column tags, which has several values; write `'VALUE' in COLUMN`",
    "released > 'tomorrow'": "compares a time with 'tomorrow'; write it as '2026-01-31'",
    "released > '2026-01-01T00:00:00+01:00'": "has a time zone",
    "genre like tags": "like compares a text with a constant pattern",
    "adult and stock": "column stock: is a number, not a condition",
    "user.agee > 3": "column user.agee: does not exist; did you mean user.age?",
    "not " * 60 + "adult": "is nested more than 50 deep",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_condition_on_known_columns_is_refused(text):
    with pytest.raises(InputError) as refused:
        check_text(text)
    assert str(refused.value).startswith(f"[rules] eligible = {text!r}: ") and REFUSED[text] in str(refused.value)
