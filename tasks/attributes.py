"""Attributes of items and users, from the tables that a data set's file names in `[items]` and `[users]`."""

from collections.abc import Mapping
from typing import Literal, get_args

import duckdb
import polars as pl

from oneclass import sql
from oneclass.tasks.stores import warehouse

Side = Literal["item", "user"]
Attributes = Mapping[str, pl.DataFrame]  # by side, as `load_attributes` returns them, of the sides that have any
NO_ATTRIBUTES: Attributes = {}
TYPES: dict[str, pl.DataType] = {
    "category": pl.String(),
    "categories": pl.List(pl.String()),
    "number": pl.Float64(),
    "text": pl.String(),
    "boolean": pl.Boolean(),
    "bigint": pl.Int64(),
    "double": pl.Float64(),
    "date": pl.Date(),
    "timestamp": pl.Datetime("us"),
    "varchar": pl.String(),
}
"""The types of columns: of features by their kind, and of others as their values allow."""


def load_all_attributes(connection: duckdb.DuckDBPyConnection) -> Attributes:
    """Load the current attributes of both sides."""
    tables = {side: load_attributes(connection, side) for side in get_args(Side)}
    return {side: table for side, table in tables.items() if table is not None}


def load_attributes(connection: duckdb.DuckDBPyConnection, side: Side) -> pl.DataFrame | None:
    """Load the current attributes of a side: `item_id` or `user_id`, and each column of its type.

    Returns:
        One row per id, by id; None if the data set has no such table.
    """
    if not (current := load_version(connection, side)):
        return None
    _, names, types, separator, _ = current
    cells = warehouse.select(connection, "attributes/cells", side=side)
    wide = cells.rename({"id": f"{side}_id"}).pivot("name", index=f"{side}_id", values="value").sort(f"{side}_id")
    return wide.select(
        f"{side}_id", *(convert_column(pl.col(name), kind, separator) for name, kind in zip(names, types, strict=True))
    )


def load_version(
    connection: duckdb.DuckDBPyConnection, side: Side
) -> tuple[str, list[str], list[str], str, float] | None:
    """Return digest, columns, their types, separator and bound of empty cells of the current table of a side."""
    found = connection.execute(sql.statement("attributes/current"), {"side": side}).fetchall()
    return found[0] if found else None


def convert_column(column: pl.Expr, kind: str, separator: str) -> pl.Expr:
    """Convert texts to a type of `TYPES`; null where a text is no value of it."""
    if kind == "categories":
        names = column.str.split(separator).list.eval(pl.element().str.strip_chars())
        return names.list.eval(pl.element().filter(pl.element() != "")).list.unique(maintain_order=True)
    if kind == "boolean":
        return column.str.to_lowercase().replace_strict({"true": True, "false": False}, default=None)
    if kind == "date":
        return column.str.to_date("%Y-%m-%d", strict=False)
    if kind == "timestamp":
        return column.str.replace("T", " ").str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
    return column.cast(TYPES[kind], strict=False)
