"""Evaluate the SQL conditions of rules by DuckDB, on the columns of items and of users.

A condition is one expression. A walk over its syntax tree admits columns that exist, constants, operators and
FUNCTIONS, so that it names no other table and comes out the same each time; DuckDB writes it from the tree. It is
evaluated in a connection in memory that can open no file and whose configuration is locked.

Numbers are compared as doubles and dates as times; a result of null counts as false.
"""

import difflib
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import polars.selectors as cs

from oneclass.tasks.errors import InputError

if TYPE_CHECKING:
    from oneclass.tasks.attributes import Attributes  # which imports DuckDB

ITEM_USERS, USER_ITEMS = "history.users", "history.items"
"""The facts of the history: how many users have an item, and how many items a user has."""
USER_PREFIX = "user."
TYPES: dict[pl.DataType, str] = {
    pl.Boolean(): "boolean",
    pl.Float64(): "double",
    pl.String(): "varchar",
    pl.Datetime("us"): "timestamp",
    pl.List(pl.String()): "varchar[]",
}
PARTS = {"COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "BETWEEN", "OPERATOR", "FUNCTION", "CAST", "TYPE"}
OPERATORS = ("+", "-", "*", "/", "%", "||", "~~", "!~~", "~~*", "!~~*")
FUNCTIONS = (
    "abs", "ceil", "floor", "round", "greatest", "least", "length", "lower", "upper", "trim", "contains", "starts_with",
    "ends_with", "regexp_matches", "list_contains", "list_has_any", "list_has_all", "list_value", "year", "month",
)  # fmt: skip
CACHED_CELLS = 1 << 24  # of masks that are kept, a byte for each item
USER_ROW = "history.row"
MAX_DEPTH = 200  # of the syntax tree, in which an operator takes two or three levels

UserValues = Mapping[str, Sequence[object]]  # by user column, the value of each user


@dataclass(frozen=True)
class Condition:
    """A checked condition of a setting, `key`.

    Attributes:
        sql: as DuckDB writes it, on the tables `item` and `"user"`.
        item_columns, user_columns: the columns that it names; of users as `user.NAME` or `history.items`.
    """

    key: str
    text: str
    sql: str
    item_columns: tuple[str, ...]
    user_columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key} = {self.text!r}"


class Catalogue:
    """The items that can be in lists, by column of the fit, and the columns that rules may name.

    Attributes:
        items: the items' columns, one row per column of the fit; null for an item without attributes.
        described: bool (items,), whether the table of items has them; None without a table.
        item_types, user_types: the SQL types of the columns that conditions may name.
    """

    def __init__(self, item_ids: pl.Series, item_users: pl.Series, attributes: "Attributes") -> None:
        """Align attributes, where there are any, with the columns of the fit; `item_users` like each item."""
        self.item_ids, self.described = item_ids, None
        items = item_ids.rename("item_id").to_frame()
        if (table := attributes.get("item")) is not None:
            self.described = item_ids.is_in(table["item_id"].implode()).to_numpy()
            items = items.join(table, on="item_id", how="left", maintain_order="left")
        self.items, self.item_types = _normalize_types(items.with_columns(item_users.alias(ITEM_USERS)))
        users = attributes.get("user", pl.DataFrame(schema={"user_id": pl.String}))
        self._users, types = _normalize_types(users.rename((USER_PREFIX + "{}").format))
        self.user_types = {**(types if "user" in attributes else {}), USER_ITEMS: "double"}
        kept = max(1, CACHED_CELLS // max(len(item_ids), 1))
        self._find_for_all = functools.lru_cache(kept)(lambda condition: self._find_items(condition, {}))

    def describe_users(self, user_ids: pl.Series, item_counts: pl.Series) -> pl.DataFrame:
        """Return the user columns that conditions may name, one row per user; `item_counts` is how many they like."""
        # Without ids there is nothing to look up among what may be millions.
        known, key = self._users if user_ids.null_count() < len(user_ids) else self._users.clear(), "user.user_id"
        users = user_ids.rename(key).to_frame().join(known, on=key, how="left", maintain_order="left")
        return users.with_columns(item_counts.cast(pl.Float64).alias(USER_ITEMS))

    def describe_stranger(self, item_count: int = 0) -> pl.DataFrame:
        """Return the user columns, one row, of a user who is not known."""
        return self.describe_users(pl.Series([None], dtype=pl.String), pl.Series([item_count]))

    def check_condition(self, text: str, key: str) -> Condition:
        """Parse the condition of a setting and check its columns; `find_items` finds wrong types.

        Raises:
            InputError: naming the key, and the column or the part that is wrong.
        """
        what, item_columns, user_columns = f"{key} = {text!r}", set[str](), set[str]()
        tree, clause = self._parse(text, what)
        parts = [(clause, 0)]
        while parts:
            part, depth = parts.pop()
            if depth > MAX_DEPTH:
                raise InputError(f"{what}: is nested too deep.")
            if isinstance(part, list):
                parts += [(one, depth + 1) for one in part]
            elif isinstance(part, dict):
                if part.get("class") == "COLUMN_REF":
                    name = self._find_column(".".join(part["column_names"]), what)
                    is_user = name in self.user_types
                    (user_columns if is_user else item_columns).add(name)
                    part["column_names"] = ["user" if is_user else "item", name.removeprefix(USER_PREFIX)]
                elif objection := _find_objection(part):
                    raise InputError(f"{what}: {objection}.")
                parts += [(one, depth + 1) for one in part.values()]
        sql = self._query("select json_deserialize_sql($1::json)", [json.dumps(tree)]).fetchone()[0]
        sql = sql.removeprefix("SELECT 1 WHERE ")
        return Condition(key, text, sql, tuple(sorted(item_columns)), tuple(sorted(user_columns)))

    def find_items(self, condition: Condition, users: UserValues) -> np.ndarray:
        """Return for which items a condition is true, bool (users, items); (1, items) if it names no user column.

        Raises:
            InputError: it is no condition, or a value cannot be compared, such as a text with a number.
        """
        return self._find_items(condition, users) if condition.user_columns else self._find_for_all(condition)

    def _find_items(self, condition: Condition, users: UserValues) -> np.ndarray:
        import duckdb

        named = {name.removeprefix(USER_PREFIX): self.user_types[name] for name in condition.user_columns}
        values = [users[name] for name in condition.user_columns]
        found = np.zeros((len(values[0]) if values else 1, len(self.items)), dtype=bool)
        people = ", ".join([f'unnest(range({len(found)})) as "{USER_ROW}"', *_unnest_parameters(named)])
        pairs = f'from item, (select {people}) as "user" where {condition.sql}'
        try:
            result = self._query(f'select "user"."{USER_ROW}", item.rowid, {condition.sql} {pairs}', values)
            kind, places = result.description[2][1], list(result.fetchnumpy().values())
        except duckdb.Error as error:
            reason = str(error).partition("\n")[0].rstrip(".")
            several = "varchar[]" in (self.item_types.get(name) for name in condition.item_columns)
            hint = " For a column with several values write `'VALUE' in COLUMN`." if several else ""
            raise InputError(f"{condition}: {reason}.{hint}") from error
        if kind != "BOOLEAN":
            raise InputError(f"{condition}: is a {kind}, not a condition; write a comparison, such as `stock > 0`.")
        found[places[0], places[1]] = True
        return found

    def _parse(self, text: str, what: str) -> tuple[Any, Any]:
        """Return a syntax tree with the condition, and the condition, if that is all that the text adds up to."""
        if not text.strip():
            raise InputError(f"{what}: is empty.")
        try:
            tree, clause = self._serialize(text)
        except RecursionError:
            raise InputError(f"{what}: is nested too deep.") from None
        if tree["error"]:
            columns, reason = ", ".join([*self.item_types, *self.user_types]), tree["error_message"].strip()
            raise InputError(f"{what}: is no SQL condition ({reason}). The columns are {columns}.")
        if tree != self._serialize("true")[0]:
            raise InputError(f"{what}: is more than a condition.")
        tree["statements"][0]["node"]["where_clause"] = clause
        return tree, clause

    def _serialize(self, text: str) -> tuple[Any, Any]:
        """Return the syntax tree of `select 1 where (TEXT)` without the condition, and the condition."""
        statement = f"select 1 where (\n{text}\n)"
        tree = json.loads(self._query("select json_serialize_sql($1)", [statement]).fetchone()[0])
        return tree, None if tree["error"] else tree["statements"][0]["node"].pop("where_clause", None)

    def _find_column(self, name: str, what: str) -> str:
        """Return the column that is meant by a name, whatever its case."""
        columns = [*self.item_types, *self.user_types]
        if (found := {column.lower(): column for column in columns}.get(name.lower())) is not None:
            return found
        known, table = (self.user_types, "users") if name.startswith(USER_PREFIX) else (self.item_types, "items")
        if set(known) <= {"item_id", ITEM_USERS, USER_ITEMS}:
            raise InputError(f"{what}: column {name}: there is no table of {table}; declare one under [{table}].")
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(columns)}."
        raise InputError(f"{what}: column {name}: does not exist; {hint}")

    def _query(self, statement: str, values: Sequence[object]) -> Any:
        return self._connection.cursor().execute(statement, values)  # a cursor is of one thread

    @functools.cached_property
    def _connection(self) -> Any:
        """The locked connection, with the table `item`."""
        import duckdb  # not above, because a publication without conditions is served without DuckDB

        connection = duckdb.connect(config={"enable_external_access": "false", "threads": "1"})
        columns = ", ".join(_unnest_parameters(self.item_types))
        connection.execute(f"create table item as select {columns}", [column.to_list() for column in self.items])
        connection.execute("set lock_configuration = true")
        return connection


def _find_objection(part: Mapping[str, Any]) -> str | None:
    """Return what a condition may not have of a part of its syntax tree; None if it may have it."""
    kind, name = part.get("class"), part.get("function_name")
    if kind is not None and kind not in PARTS:
        return f"has a part that rules do not know ({kind.lower()})"
    if kind == "FUNCTION" and name not in (*OPERATORS, *FUNCTIONS):
        return f"has the function {name}, which rules do not know; they know {', '.join(FUNCTIONS)}"
    if part.get("kind") == "NULL_LITERAL":
        return "compares with null; write `is null` or `is not null`"
    return None


def _normalize_types(frame: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, str]]:
    """Cast numbers to double and dates to times, which conditions compare; return the SQL types too."""
    frame = frame.with_columns(cs.numeric().cast(pl.Float64), cs.date().cast(pl.Datetime("us")))
    return frame, {name: TYPES[dtype] for name, dtype in frame.schema.items()}


def _unnest_parameters(types: Mapping[str, str]) -> list[str]:
    """Return the SQL of columns that are given as parameters, a list for each."""
    named = (('"' + name.replace('"', '""') + '"', kind) for name, kind in types.items())
    return [f"unnest(${place}::{kind}[]) as {name}" for place, (name, kind) in enumerate(named, 1)]
