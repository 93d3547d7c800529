"""Lists by rules, against a plain reading of the rules."""

import random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneclass.tasks.errors import InputError
from oneclass.tasks.rules.lists import check_rules
from oneclass.tasks.rules.settings import DeclaredRules, Rules
from tests.tasks.rules import oracle

ATTRIBUTES = {
    "item": pl.DataFrame(schema=oracle.ITEM_TYPES),
    "user": pl.DataFrame(schema=oracle.USER_TYPES),
}


@settings(max_examples=100, deadline=None)
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
        check_rules(DeclaredRules(rules=WRONG[message]), {} if "declare one" in message else ATTRIBUTES)
    assert message in str(refused.value)
