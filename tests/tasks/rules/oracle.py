"""Draw random catalogues, rules and scores, and select lists by a plain implementation of the rules.

Each condition is drawn as SQL and as a function of an item and a user in plain Python with three truth values. Nothing
but `select_all` uses the project's own evaluation or selection.
"""

import fnmatch
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.tasks.rules.conditions import Catalogue
from oneclass.tasks.rules.selection import Selector, select_lists
from oneclass.tasks.rules.settings import Boost, DeclaredRules, Placement, Rules

Row = Mapping[str, Any]
Condition = Callable[[Row, Row], bool | None]

GENRES, TAGS, PLANS = ("folk", "jazz", "Rock", "a%b"), ("x", "y", "z"), ("free", "paid")
DATES = [date(2026, month, 1) for month in range(1, 7)]
ITEM_TYPES = {
    "item_id": pl.String,
    "stock": pl.Int64,
    "price": pl.Float64,
    "adult": pl.Boolean,
    "genre": pl.String,
    "tags": pl.List(pl.String),
    "released": pl.Date,
}
USER_TYPES = {"user_id": pl.String, "age": pl.Int64, "plan": pl.String}
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@dataclass
class Shop:
    """A catalogue with its users, histories and scores.

    Attributes:
        items, users: rows with attributes, `history.users` or `history.items`, and `undescribed`.
        excluded: items that must not be listed for each user, beside the history.
    """

    items: list[dict[str, Any]]
    users: list[dict[str, Any]]
    histories: list[set[int]]
    excluded: list[set[int]]
    scores: np.ndarray

    def build_table(self, side: str) -> pl.DataFrame:
        """Build the attribute table of a side, without the undescribed rows."""
        rows, types = (self.items, ITEM_TYPES) if side == "item" else (self.users, USER_TYPES)
        described = [{name: row[name] for name in types} for row in rows if not row["undescribed"]]
        return pl.DataFrame(described, schema=types)


@dataclass
class RuleCase:
    """The rules of one list, as settings and as conditions in Python."""

    rules: Rules
    placement: Placement | None
    n: int
    conditions: list[Condition]
    boosts: list[tuple[Condition, float]]
    limits: dict[str, int] = field(default_factory=dict)


def draw_shop(generator: random.Random, items: int, users: int) -> Shop:
    """Draw a catalogue and users with missing values, and scores with ties, infinities and NaN."""
    rows = [_draw_item(generator, number) for number in range(items)]
    people = [
        {
            "user_id": f"u{number}",
            "age": generator.choice([None, 12, 17, 18, 40]),
            "plan": generator.choice([None, *PLANS]),
            "undescribed": generator.random() < 0.1,
        }
        for number in range(users)
    ]
    histories = [set(generator.sample(range(items), generator.randint(0, items // 3))) for _ in people]
    counts = Counter(item for history in histories for item in history)
    for number, row in enumerate(rows):
        row["history.users"] = counts[number]
    for person, history in zip(people, histories, strict=True):
        person["history.items"] = len(history)
    for row in (*rows, *people):
        if row["undescribed"]:
            row.update({name: None for name in row if name in ITEM_TYPES | USER_TYPES and not name.endswith("_id")})
    excluded = [set(generator.sample(range(items), min(items, generator.choice([0, 0, 2])))) for _ in people]
    numpy_generator = np.random.default_rng(generator.getrandbits(32))
    scores = np.round(numpy_generator.standard_normal((users, items)), generator.choice([1, 6])).astype(np.float32)
    scores[numpy_generator.random(scores.shape) < 0.03] = -np.inf
    scores[numpy_generator.random(scores.shape) < 0.03] = np.nan
    return Shop(rows, people, histories, excluded, scores)


def _draw_item(generator: random.Random, number: int) -> dict[str, Any]:
    return {
        "item_id": f"i{number}",
        "stock": generator.choice([None, 0, 0, 1, 5, 9]),
        "price": generator.choice([None, 0.5, 2.25, 10.0]),
        "adult": generator.choice([None, False, False, True]),
        "genre": generator.choice([None, *GENRES]),
        "tags": generator.choice([None, [], ["x"], ["x", "y"], ["z", "y"]]),
        "released": generator.choice([None, *DATES]),
        "undescribed": generator.random() < 0.1,
    }


def draw_case(generator: random.Random, items: int) -> RuleCase:
    """Draw the rules of one list: those of all lists, and in half of the cases those of a placement."""
    layers, conditions, boosts, limits = [], [], [], {}
    for _ in range(generator.choice([1, 2])):
        eligible = [draw_condition(generator, 2)] if generator.random() < 0.7 else []
        amounts = generator.sample([-1.0, 0.1, 0.5, 3.0], generator.choice([0, 0, 1, 2]))
        boosted = [(draw_condition(generator, 1), by) for by in amounts]
        of_layer = {column: generator.randint(1, 3) for column in ("genre", "tags") if generator.random() < 0.4}
        layers.append(
            {
                "eligible": eligible[0][0] if eligible else "",
                "boosts": [Boost(when=text, by=by) for (text, _), by in boosted],
                "max_per_category": of_layer,
            }
        )
        conditions += [condition for _, condition in eligible]
        boosts += [(condition, by) for (_, condition), by in boosted]
        limits |= of_layer
    ids = [f"i{number}" for number in generator.sample(range(items), min(4, items))] + ["unknown"]
    named = {setting: generator.sample(ids, generator.choice([0, 0, 2])) for setting in ("pinned", "banned")}
    general, *of_placement = layers
    placement = Placement(**of_placement[0]) if of_placement else None
    n = generator.choice([1, 3, 10, 40])
    return RuleCase(Rules(**general, **named), placement, n, conditions, boosts, limits)


def draw_condition(generator: random.Random, depth: int) -> tuple[str, Condition]:
    """Draw a condition as SQL and as a Python function."""
    shape = generator.choice(["leaf", "and", "or", "not"]) if depth else "leaf"
    if shape == "leaf":
        return _draw_leaf(generator)
    left, evaluate_left = draw_condition(generator, depth - 1)
    if shape == "not":
        return f"not ({left})", lambda item, user: _negate_known(evaluate_left(item, user))
    right, evaluate_right = draw_condition(generator, depth - 1)
    decisive = shape == "or"

    def evaluate_both(item: Row, user: Row) -> bool | None:
        values = (evaluate_left(item, user), evaluate_right(item, user))
        return decisive if decisive in values else None if None in values else not decisive

    return f"({left}) {shape} ({right})", evaluate_both


def _draw_leaf(generator: random.Random) -> tuple[str, Condition]:
    sign = generator.choice(list(COMPARE))
    compare = COMPARE[sign]
    number = generator.choice([0, 1, 2.25, 5, 18])
    column = generator.choice(["stock", "price", "history.users", "user.age", "history.items"])
    genre, plan, tag = generator.choice(GENRES), generator.choice(PLANS), generator.choice(TAGS)
    day = generator.choice(DATES)
    pattern = generator.choice(["%o%", "_ock", "a%b", "J%", "folk"])
    glob = pattern.replace("%", "*").replace("_", "?")
    leaves: list[tuple[str, Condition]] = [
        (f"{column} {sign} {number}", _if_known(column, lambda value: compare(value, number))),
        (f"{column} is null", lambda item, user: _get_value(item, user, column) is None),
        ("genre is not null", lambda item, user: item["genre"] is not None),
        ("adult", lambda item, user: item["adult"]),
        ("not adult", lambda item, user: _negate_known(item["adult"])),
        (f"genre {sign} '{genre}'", _if_known("genre", lambda value: compare(value.encode(), genre.encode()))),
        (f"user.plan in ('{plan}')", _if_known("user.plan", lambda value: value == plan)),
        (f"'{tag}' in tags", _if_known("tags", lambda value: tag in value)),
        (f"genre like '{pattern}'", _if_known("genre", lambda value: fnmatch.fnmatchcase(value, glob))),
        (f"length(genre) {sign} 3", _if_known("genre", lambda value: compare(len(value), 3))),
        (f"released {sign} '{day}'", _if_known("released", lambda value: compare(value, day))),
        (f"released between '{DATES[1]}' and '{day}'", _if_known("released", lambda value: DATES[1] <= value <= day)),
    ]
    return generator.choice(leaves)


def _get_value(item: Row, user: Row, column: str) -> Any:
    if column == "history.items":
        return user[column]
    return user[column.removeprefix("user.")] if column.startswith("user.") else item[column]


def _if_known(column: str, test: Callable[[Any], bool]) -> Condition:
    def hold(item: Row, user: Row) -> bool | None:
        value = _get_value(item, user, column)
        return None if value is None else test(value)

    return hold


def _negate_known(value: bool | None) -> bool | None:
    return None if value is None else not value


def list_allowed_items(shop: Shop, case: RuleCase, user: int, *, exclude_seen: bool) -> list[int]:
    """List the items that a user may get, before the limits per category."""
    person = shop.users[user]
    left_out = shop.excluded[user] | (shop.histories[user] if exclude_seen else set())
    return [
        number
        for number, item in enumerate(shop.items)
        if number not in left_out
        and item["item_id"] not in case.rules.banned
        and all(condition(item, person) is True for condition in case.conditions)
    ]


def list_categories(item: Row, limits: Mapping[str, int]) -> list[tuple[str, str]]:
    """List the (column, value) pairs of an item that have limits."""
    values = ((column, item[column]) for column in limits)
    return [
        (column, one)
        for column, value in values
        for one in (value if isinstance(value, list) else [] if value is None else [value])
    ]


def select_naively(shop: Shop, case: RuleCase, user: int, allowed: list[int]) -> list[int]:
    """Select the list of a user: pins, then allowed items by score, each if its categories have room."""
    without_nan = np.where(np.isnan(shop.scores[user]), np.float32(-np.inf), shop.scores[user])
    scores = {item: without_nan[item] for item in allowed}
    unboosted = sorted(scores.values(), reverse=True)[: case.n]
    spread = np.float32(0)
    if unboosted and all(math.isfinite(value) for value in (unboosted[0], unboosted[-1])):
        spread = unboosted[0] - unboosted[-1]
    for item in allowed:
        by = [amount for condition, amount in case.boosts if condition(shop.items[item], shop.users[user]) is True]
        scores[item] = scores[item] + np.float32(sum(by)) * spread
    numbers = {item["item_id"]: number for number, item in enumerate(shop.items)}
    pins = [numbers[item_id] for item_id in case.rules.pinned if item_id in numbers]
    ranking = sorted(allowed, key=lambda item: (-scores[item], item))
    chosen: list[int] = []
    counts: Counter[tuple[str, str]] = Counter()
    for item in [*pins, *ranking]:
        categories = list_categories(shop.items[item], case.limits)
        has_room = all(counts[category] < case.limits[category[0]] for category in categories)
        if len(chosen) < case.n and item in scores and item not in chosen and has_room:
            chosen.append(item)
            counts.update(categories)
    return chosen


def select_all(shop: Shop, case: RuleCase, *, exclude_seen: bool) -> list[list[int]]:
    """Select the list of each user by the project's own code."""
    attributes = {"item": shop.build_table("item"), "user": shop.build_table("user")}
    ids = pl.Series([item["item_id"] for item in shop.items])
    catalogue = Catalogue(ids, pl.Series([item["history.users"] for item in shop.items]), attributes)
    name = "home" if case.placement else None
    declared = DeclaredRules(rules=case.rules, placements={name: case.placement} if name else {})
    counts = pl.Series([user["history.items"] for user in shop.users])
    people = catalogue.describe_users(pl.Series([user["user_id"] for user in shop.users]), counts)
    excluded = build_matrix(shop.excluded, len(ids))
    selector = Selector(declared, catalogue, name, case.n)
    selection = selector.select(len(people), lambda: people, excluded=excluded, exclude_seen=exclude_seen)
    lists = select_lists(shop.scores, build_matrix(shop.histories, len(ids)), selection)[0]
    return [[int(item) for item in row if item >= 0] for row in lists]


def build_matrix(rows: Sequence[set[int]], width: int) -> csr_matrix:
    """Return a (rows, width) matrix with a one for each member of a row."""
    indices = [item for row in rows for item in sorted(row)]
    indptr = np.cumsum([0, *map(len, rows)])
    return csr_matrix((np.ones(len(indices), np.float32), indices, indptr), shape=(len(rows), width))
