"""Attributes of items and users, from the tables that a data set's file names in `[items]` and `[users]`."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

import duckdb
import polars as pl

from oneclass import sql
from oneclass.tasks.stores import warehouse

Side = Literal["item", "user"]
Attributes = Mapping[str, pl.DataFrame]  # by side, as `load_attributes` returns them, of the sides that have any
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


class Version(NamedTuple):
    """A version of a table of attributes.

    Attributes:
        sha256: the digest of its file.
        columns, types: all but the ids, each with its type.
        separator: between the names in a cell of `categories`.
        max_missing_share: a feature with a larger share of empty cells is warned of.
    """

    sha256: str
    columns: list[str]
    types: list[str]
    separator: str
    max_missing_share: float


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
    cells = warehouse.select(connection, "ingest/attribute_cells", side=side).rename({"id": f"{side}_id"})
    wide = cells.pivot("name", index=f"{side}_id", values="value").sort(f"{side}_id")
    return convert_columns(current, wide.select(f"{side}_id", *current.columns))


def load_version(connection: duckdb.DuckDBPyConnection, side: Side) -> Version | None:
    """Return the version of the current table of a side."""
    found = connection.execute(sql.statement("ingest/current_attributes"), {"side": side}).fetchone()
    return Version(*found) if found else None


def convert_columns(version: Version, texts: pl.DataFrame) -> pl.DataFrame:
    """Convert a table's columns of texts to their types."""
    columns = zip(version.columns, version.types, strict=True)
    return texts.with_columns(convert_column(pl.col(name), kind, version.separator) for name, kind in columns)


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
