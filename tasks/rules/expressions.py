"""Parse and check the SQL conditions of rules, and evaluate them on attributes.

DuckDB parses; a walk over its syntax tree admits columns that exist, constants, comparisons, `and`, `or`, `not`, `in`,
`between`, `like`, `is null`, + - * / and the functions `lower`, `length`, `coalesce`, `starts_with`, `contains` and
`list_contains`, and checks types. No text of an expression is ever put into a statement.

Numbers are compared as doubles and dates as times; a result of null counts as false.
"""

import difflib
import functools
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NoReturn

import polars as pl

from oneclass.tasks.errors import InputError

Kind = Literal["boolean", "number", "text", "time", "texts"]
ColumnKinds = Mapping[str, Kind]
UserValues = Mapping[str, Any]
Build = Callable[[UserValues], pl.Expr]
Node = dict[str, Any]

ITEM_USERS, USER_ITEMS = "history.users", "history.items"
"""The facts of the history: how many users have an item, and how many items a user has."""
USER_PREFIX = "user."
DTYPES: dict[Kind, Any] = {
    "boolean": pl.Boolean,
    "number": pl.Float64,
    "text": pl.String,
    "time": pl.Datetime("us"),
    "texts": pl.List(pl.String),
}
ALLOWED = (
    "columns, constants, comparisons, and, or, not, in, between, like, is null, + - * /, "
    "lower, length, coalesce, starts_with, contains and list_contains"
)
COMPARISONS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "COMPARE_EQUAL": lambda left, right: left == right,
    "COMPARE_NOTEQUAL": lambda left, right: left != right,
    "COMPARE_LESSTHAN": lambda left, right: left < right,
    "COMPARE_LESSTHANOREQUALTO": lambda left, right: left <= right,
    "COMPARE_GREATERTHAN": lambda left, right: left > right,
    "COMPARE_GREATERTHANOREQUALTO": lambda left, right: left >= right,
}
ARITHMETIC: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
}
MAX_DEPTH = 50  # of brackets and operators within each other
MAX_NEAR_NAMES = 3

_parser_lock = threading.Lock()


@dataclass(frozen=True)
class Expression:
    """A checked condition.

    Attributes:
        item_columns: the item columns that it names.
        user_columns: the user columns that it names, as `user.NAME` or `history.items`.
        statement: the syntax tree of `select 1 where (CONDITION)`, with the columns qualified by `item` and `user`.
    """

    text: str
    item_columns: frozenset[str]
    user_columns: tuple[str, ...]
    statement: Node
    build: Build

    @property
    def sql(self) -> str:
        """The condition as DuckDB writes it, from the syntax tree."""
        with _parser_lock:
            row = _parser().execute("select json_deserialize_sql($1::json)", [json.dumps(self.statement)]).fetchone()
        return row[0].removeprefix("SELECT 1 WHERE ")

    def evaluate(self, items: pl.DataFrame, user: UserValues) -> pl.Series:
        """Return for each item whether the condition is true, for a user with these values of `user_columns`."""
        found = items.select(self.build(user).alias("eligible")).to_series()
        if found.null_count():  # Not in the expression, which would go to a pool of threads that a busy machine delays.
            found = found.fill_null(value=False)
        return found if len(found) == len(items) else found.new_from_index(0, len(items))


class _Refused(Exception):
    """An expression that is not admitted, with the reason."""


def column_kinds(frame: pl.DataFrame | None, prefix: str = "") -> dict[str, Kind]:
    """Return the kinds of a frame's columns that an expression can name."""
    kinds: dict[str, Kind] = {}
    for name, dtype in frame.schema.items() if frame is not None else ():
        if dtype == pl.Boolean:
            kinds[prefix + name] = "boolean"
        elif dtype.is_numeric():
            kinds[prefix + name] = "number"
        elif dtype == pl.String:
            kinds[prefix + name] = "text"
        elif isinstance(dtype, pl.Date | pl.Datetime):
            kinds[prefix + name] = "time"
        elif dtype == pl.List(pl.String):
            kinds[prefix + name] = "texts"
    return kinds


def normalize_types(frame: pl.DataFrame) -> pl.DataFrame:
    """Cast numbers to double and dates to times, the types that expressions compare."""
    kinds = column_kinds(frame)
    return frame.select(pl.col(name).cast(DTYPES[kind]) for name, kind in kinds.items())


def check_expression(text: str, key: str, items: ColumnKinds, users: ColumnKinds) -> Expression:
    """Parse a condition and check its columns and types.

    Args:
        key: the setting, such as `[rules] eligible`, for the error.
        items, users: the kinds of the columns; those of users are named `user.NAME`, beside `history.items`.

    Raises:
        InputError: naming the key, and the column or the part that is wrong.
    """
    try:
        return _Checker(items, users).check(text)
    except _Refused as error:
        raise InputError(f"{key} = {text!r}: {error}{'' if str(error).endswith('?') else '.'}") from None


def find_near(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that are close to a misspelt one, the closest first."""
    by_bare = {one.removeprefix(USER_PREFIX).lower(): one for one in known}
    bare = name.removeprefix(USER_PREFIX).lower()
    return [by_bare[one] for one in difflib.get_close_matches(bare, by_bare, n=MAX_NEAR_NAMES)]


class _Checker:
    """Walk a syntax tree; each `_check_*` returns the kind of a node and what builds its Polars expression."""

    def __init__(self, items: ColumnKinds, users: ColumnKinds) -> None:
        self._items, self._users = items, users
        self._item_columns: set[str] = set()
        self._user_columns: set[str] = set()
        self._depth = 0

    def check(self, text: str) -> Expression:
        statement = json.loads(_parse(text))
        clause = statement["statements"][0]["node"]["where_clause"]
        kind, build = self._check(clause)
        if kind != "boolean":
            _refuse(f"is {_name_kind(kind)}, not a condition; write a comparison, such as `stock > 0`")
        # The walk has qualified the columns.
        return Expression(text, frozenset(self._item_columns), tuple(sorted(self._user_columns)), statement, build)

    def _check(self, node: Node) -> tuple[Kind, Build]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            _refuse(f"is nested more than {MAX_DEPTH} deep")
        check = getattr(self, f"_check_{node['class'].lower()}", None)
        if check is None or node["alias"]:
            _refuse(f"has a part that rules do not know ({node['class'].lower()}); allowed: {ALLOWED}")
        found = check(node)
        self._depth -= 1
        return found

    def _check_column_ref(self, node: Node) -> tuple[Kind, Build]:
        name = ".".join(node["column_names"])
        if name in self._users:
            self._user_columns.add(name)
            kind = self._users[name]
            node["column_names"] = ["user", name.removeprefix(USER_PREFIX)]
            return kind, lambda user: pl.lit(user[name], DTYPES[kind])
        if name in self._items:
            self._item_columns.add(name)
            node["column_names"] = ["item", name]
            return self._items[name], lambda user: pl.col(name)
        of_user = name.startswith(USER_PREFIX)
        known, table = (self._users, "users") if of_user else (self._items, "items")
        if set(known) <= {"item_id", ITEM_USERS, USER_ITEMS}:
            _refuse(f"column {name}: there is no table of {table}; declare one under [{table}]")
        if near := find_near(name, known):
            _refuse(f"column {name}: does not exist; did you mean {' or '.join(near)}?")
        _refuse(f"column {name}: does not exist; known: {', '.join([*self._items, *self._users])}")

    def _check_constant(self, node: Node) -> tuple[Kind, Build]:
        kind, value = node["literal"]["kind"], node["literal"]["text"]
        if kind == "STRING":
            return "text", lambda user: pl.lit(value)
        if kind in ("INTEGER", "NUMERIC"):
            number = float(value)
            return "number", lambda user: pl.lit(number)
        if kind == "BOOLEAN":
            truth = value.lower() == "true"
            return "boolean", lambda user: pl.lit(truth)
        _refuse("compares with null; write `is null` or `is not null`")

    def _check_conjunction(self, node: Node) -> tuple[Kind, Build]:
        parts = [self._check_boolean(child) for child in node["children"]]
        join = pl.Expr.and_ if node["type"] == "CONJUNCTION_AND" else pl.Expr.or_
        return "boolean", lambda user: functools.reduce(join, [part(user) for part in parts])

    def _check_comparison(self, node: Node) -> tuple[Kind, Build]:
        if node["type"] not in COMPARISONS:
            _refuse(f"has a comparison that rules do not know; allowed: {ALLOWED}")
        left, right = self._check_alike([node["left"], node["right"]])[1]
        compare = COMPARISONS[node["type"]]
        return "boolean", lambda user: compare(left(user), right(user))

    def _check_between(self, node: Node) -> tuple[Kind, Build]:
        value, low, high = self._check_alike([node["input"], node["lower"], node["upper"]])[1]
        return "boolean", lambda user: (value(user) >= low(user)) & (value(user) <= high(user))

    def _check_operator(self, node: Node) -> tuple[Kind, Build]:
        kind, children = node["type"], node["children"]
        if kind == "OPERATOR_NOT":
            part = self._check_boolean(children[0])
            return "boolean", lambda user: ~part(user)
        if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
            part = self._check(children[0])[1]
            is_null = kind == "OPERATOR_IS_NULL"
            return "boolean", lambda user: part(user).is_null() if is_null else part(user).is_not_null()
        if kind == "COMPARE_IN":
            value, *others = self._check_alike(children)[1]
            return "boolean", lambda user: functools.reduce(pl.Expr.or_, [value(user) == one(user) for one in others])
        if kind == "OPERATOR_COALESCE":
            alike, parts = self._check_alike(children)
            return alike, lambda user: pl.coalesce([part(user) for part in parts])
        _refuse(f"has an operator that rules do not know; allowed: {ALLOWED}")

    def _check_function(self, node: Node) -> tuple[Kind, Build]:
        name, arguments = node["function_name"], [one["expression"] for one in node["arguments"]]
        extras = [node["filter"], node["order_bys"]["orders"], node["distinct"], node["schema"], node["catalog"]]
        if any(extras) or any(one["name"] for one in node["arguments"]):
            _refuse(f"has more than arguments in {name}(...)")
        if name in ("~~", "!~~"):
            return self._check_like(arguments, negated=name == "!~~")
        parts = [self._check(argument) for argument in arguments]
        kinds: list[Kind] = [kind for kind, _ in parts]
        builds = [build for _, build in parts]
        if name in ARITHMETIC and set(kinds) == {"number"} and (len(kinds) == 2 or name == "-"):
            first = builds[0]
            if len(kinds) == 1:
                return "number", lambda user: -first(user)
            second, compute = builds[1], ARITHMETIC[name]
            return "number", lambda user: compute(first(user), second(user))
        functions: dict[tuple[str, tuple[str, ...]], tuple[Kind, Callable[..., pl.Expr]]] = {
            ("lower", ("text",)): ("text", lambda text: text.str.to_lowercase()),
            ("length", ("text",)): ("number", lambda text: text.str.len_chars().cast(pl.Float64)),
            ("starts_with", ("text", "text")): ("boolean", lambda text, start: text.str.starts_with(start)),
            ("contains", ("text", "text")): ("boolean", lambda text, part: text.str.contains(part, literal=True)),
            ("contains", ("texts", "text")): ("boolean", lambda texts, one: texts.list.contains(one)),
            ("list_contains", ("texts", "text")): ("boolean", lambda texts, one: texts.list.contains(one)),
        }
        if found := functions.get((name, tuple(kinds))):
            kind, function = found
            return kind, lambda user: function(*(build(user) for build in builds))
        if name in ARITHMETIC or any(name == known for known, _ in functions):
            given = " and ".join(
                f"{_describe(one)}, {_name_kind(kind)}" for one, kind in zip(arguments, kinds, strict=True)
            )
            _refuse(f"{name} does not take {given}")
        _refuse(f"has the function {name}, which rules do not know; allowed: {ALLOWED}")

    def _check_like(self, arguments: Sequence[Node], *, negated: bool) -> tuple[Kind, Build]:
        kind, build = self._check(arguments[0])
        pattern = arguments[1].get("literal", {})
        if kind != "text" or pattern.get("kind") != "STRING":
            _refuse("like compares a text with a constant pattern, such as `name like 'A%'`")
        parts = ("(?s).*" if one == "%" else "(?s)." if one == "_" else re.escape(one) for one in pattern["text"])
        regex = f"^(?:{''.join(parts)})$"
        return "boolean", lambda user: build(user).str.contains(regex) ^ pl.lit(negated)

    def _check_boolean(self, node: Node) -> Build:
        kind, build = self._check(node)
        if kind != "boolean":
            _refuse(f"{_describe(node)}: is {_name_kind(kind)}, not a condition; compare it with something")
        return build

    def _check_alike(self, nodes: Sequence[Node]) -> tuple[Kind, list[Build]]:
        """Check nodes that must be of one kind; text constants beside a time are times."""
        parts: list[tuple[Kind, Build]] = [self._check(node) for node in nodes]
        kinds = {kind for kind, _ in parts}
        if kinds == {"time", "text"}:
            kinds = {"time"}
            parts = [
                part if part[0] == "time" else ("time", _time_constant(node))
                for node, part in zip(nodes, parts, strict=True)
            ]
        if "texts" in kinds:
            several = next(node for node, (kind, _) in zip(nodes, parts, strict=True) if kind == "texts")
            _refuse(f"compares {_describe(several)}, which has several values; write `'VALUE' in COLUMN`")
        if len(kinds) > 1:
            given = " with ".join(
                f"{_describe(node)}, {_name_kind(kind)}," for node, (kind, _) in zip(nodes, parts, strict=True)
            )
            _refuse(f"compares {given[:-1]}")
        return parts[0][0], [build for _, build in parts]


def _time_constant(node: Node) -> Build:
    literal = node.get("literal", {})
    try:
        time = datetime.fromisoformat(literal["text"])
    except (KeyError, ValueError):
        _refuse(f"compares a time with {_describe(node)}; write it as '2026-01-31' or '2026-01-31 12:00:00'")
    if time.tzinfo is not None:
        _refuse(f"{_describe(node)}: has a time zone; times are in UTC, write it without")
    return lambda user: pl.lit(time, pl.Datetime("us"))


def _describe(node: Node) -> str:
    """Return a node as a person would write it, for an error."""
    if "column_names" in node:
        owner, *rest = node["column_names"]
        return f"column {'.'.join(rest if owner == 'item' else node['column_names'])}"
    literal = node.get("literal")
    if literal is None:
        return "an expression"
    return f"'{literal['text']}'" if literal["kind"] == "STRING" else literal["text"]


def _name_kind(kind: Kind) -> str:
    names = {"boolean": "true or false", "number": "a number", "text": "a text", "time": "a time"}
    return names.get(kind, "several texts")


def _refuse(reason: str) -> NoReturn:
    raise _Refused(reason)


@functools.cache
def _parser() -> Any:
    # Imported here, because a publication without rules is served without DuckDB.
    import duckdb

    connection = duckdb.connect(config={"enable_external_access": "false", "threads": "1"})
    connection.execute("pragma disable_optimizer")  # which takes as long as to parse
    return connection


@functools.cache
def _serialization() -> Any:
    """Return the statement that serializes another, parsed once, since that is a third of a request's parsing."""
    [statement] = _parser().extract_statements("select json_serialize_sql($1)")
    return statement


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> str:
    """Return the syntax tree of `select 1 where (TEXT)`, as JSON, if that is all that the text adds up to."""
    if not text.strip():
        _refuse("is empty")
    tree = _serialize(text)
    parsed = json.loads(tree)
    if parsed["error"]:
        _refuse(f"is no SQL condition ({parsed['error_message'].strip()})")
    parsed["statements"][0]["node"]["where_clause"] = None
    if parsed != _parsed_frame():
        _refuse("is more than a condition")
    return tree


@functools.cache
def _parsed_frame() -> Any:
    """Return the syntax tree around a condition."""
    frame = json.loads(_serialize("true"))
    frame["statements"][0]["node"]["where_clause"] = None
    return frame


def _serialize(text: str) -> str:
    with _parser_lock:
        return _parser().execute(_serialization(), [f"select 1 where (\n{text}\n)"]).fetchone()[0]
