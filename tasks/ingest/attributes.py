"""Read the tables of attributes of items and users, and keep the current ones in the warehouse."""

import datetime as dt
import logging
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import duckdb
import polars as pl

from oneclass import sql
from oneclass.tasks.attributes import Side, convert_column, load_version
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.columns import AttributeTable
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.scan import hash_file
from oneclass.tasks.ingest.tables import ID_COLUMNS, Table, find_column, normalize_id, read_table
from oneclass.tasks.stores import warehouse

logger = logging.getLogger(__name__)

LEAST_KNOWN_SHARE = 0.5  # of the log's ids; where fewer are described, the ids may be written in two ways


@dataclass(frozen=True)
class Attributes:
    """A table of attributes.

    Attributes:
        path, sha256: the file, and the digest of its bytes.
        types: the type of each column but the ids, one of `tasks.attributes.TYPES`.
        separator, max_missing_share: as the data set's file states.
        texts: `item_id` or `user_id`, and each column as text; null where a cell is empty.
    """

    side: Side
    path: Path
    sha256: str
    types: dict[str, str]
    separator: str
    max_missing_share: float
    texts: pl.DataFrame

    @property
    def frame(self) -> pl.DataFrame:
        """The table with each column of its type."""
        return self.texts.with_columns(
            convert_column(pl.col(name), kind, self.separator) for name, kind in self.types.items()
        )


def store_attributes(connection: duckdb.DuckDBPyConnection, run_id: str, dataset: Dataset) -> None:
    """Read the data set's tables of attributes, and replace those in `raw.attributes` that changed.

    Raises:
        InputError: as `read_attributes`.
    """
    for side in get_args(Side):
        declared = getattr(dataset, f"{side}s")
        current = load_version(connection, side)
        given = read_attributes(side, declared, dataset) if declared else None
        if given and current == _describe(given):
            continue
        if current:
            connection.execute("update operations.attribute_tables set is_current = false where side = ?", [side])
            connection.execute("delete from raw.attributes where side = ?", [side])
        if given:
            _insert(connection, run_id, given)
            _warn_of_other_ids(connection, given)


def read_attributes(side: Side, declared: AttributeTable, dataset: Dataset) -> Attributes:
    """Read the table of a side, in any format that logs may have. Rows that repeat an earlier one are left out.

    Raises:
        InputError: the file is unreadable, lacks a declared column, has an empty id or two rows of one id, or a cell of
            a column of numbers is not a number.
    """
    path, what = Path(declared.file), f"[{side}s] table"
    table = read_table(path, what, dataset.encoding, ())
    ids, columns = _find_columns(path, side, declared, dataset, table)
    if not columns:
        raise InputError(f"{what} {path}, line 1: has no column but the ids. Add some, or leave out [{side}s].")
    rows = _list_rows(path, what, table, ids, columns, declared.separator, set(dataset.missing_ids))
    schema = dict.fromkeys([f"{side}_id", *columns], pl.String())
    texts = pl.DataFrame([row for _, row in rows], schema=schema, orient="row")
    _check_numbers(path, what, texts, declared, [line for line, _ in rows])
    types = {name: declared.kinds.get(name) or _infer_type(texts[name]) for name in columns}
    limits = declared.separator, declared.max_missing_share
    return Attributes(side, path, hash_file(str(path)), types, *limits, texts)


def _find_columns(
    path: Path, side: Side, declared: AttributeTable, dataset: Dataset, table: Table
) -> tuple[int, dict[str, int]]:
    """Return the places of the ids and of all other columns, by the names that the data set's file uses."""
    section = f"[{side}s] of the data set's file, datasets/{dataset.name}.toml in the home"
    what, log_columns = f"[{side}s] table", getattr(dataset.columns, side)
    accepted = (declared.id,) if declared.id else (*log_columns, *ID_COLUMNS[side])
    ids = find_column(path, what, table.names, accepted, f'Name the column of ids in {section}:\n\nid = "COLUMN"')
    columns = {}
    for name, kind in declared.kinds.items():
        advice = f"Correct `{kind}` in {section}."
        columns[name] = find_column(path, what, table.names, (name,), advice)
    others = [place for place in range(len(table.names)) if place != ids and place not in columns.values()]
    columns |= {table.names[place].strip(): place for place in others}
    names = Counter(name.strip().lower() for name in table.names)
    names[f"{side}_id"] += table.names[ids].strip().lower() != f"{side}_id"  # that is what the ids are called here
    if twice := [name for name, count in names.items() if count > 1]:
        raise InputError(f"{what} {path}, line 1: has two columns called {twice[0]}. Rename one.")
    return ids, columns


def _list_rows(
    path: Path,
    what: str,
    table: Table,
    ids: int,
    columns: dict[str, int],
    separator: str,
    missing: set[str],
) -> list[tuple[int, tuple[str | None, ...]]]:
    """Return the line and the cells of each row, the id first."""
    first: dict[str, tuple[int, tuple[str | None, ...]]] = {}
    for line, row in zip(table.lines, table.rows, strict=True):
        if len(row) != len(table.names):
            raise InputError(f"{what} {path}, line {line}: has {len(row)} fields, and the header {len(table.names)}.")
        if row[ids] is None or (name := normalize_id(row[ids])) in {"", *missing}:
            raise InputError(f"{what} {path}, line {line}: has no id in the column {table.names[ids]}. Add or drop it.")
        cells = (name, *(_to_text(row[place], separator) for place in columns.values()))
        earlier = first.setdefault(name, (line, cells))
        if earlier[1] != cells:
            raise InputError(
                f"{what} {path}, line {line}: describes {name} otherwise than line {earlier[0]}. Keep one row for each."
            )
    return list(first.values())


def _to_text(value: Any, separator: str) -> str | None:
    """Return a cell as text; None if it is empty."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return separator.join(str(one) for one in value if one is not None) or None
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    return str(value).strip() or None


def _check_numbers(path: Path, what: str, texts: pl.DataFrame, declared: AttributeTable, lines: list[int]) -> None:
    for name in declared.number:
        wrong = texts[name].is_not_null() & ~texts[name].cast(pl.Float64, strict=False).is_finite().fill_null(False)
        if (place := wrong.arg_max()) is not None and wrong[place]:
            raise InputError(
                f"{what} {path}, line {lines[place]}: {name} = {texts[name][place]!r} is not a number. Correct the "
                "cell, or move the column from `number` to `category` or `text`."
            )


def _infer_type(column: pl.Series) -> str:
    """Return the narrowest type that all values of a column have; varchar if it has none."""
    found = column.drop_nulls()
    for kind in ("boolean", "bigint", "double", "date", "timestamp"):
        values = found.to_frame().select(convert_column(pl.col(found.name), kind, "")).to_series()
        if len(found) and values.null_count() == 0:
            return kind
    return "varchar"


def _describe(given: Attributes) -> tuple[str, list[str], list[str], str, float]:
    """Return what a version of a table is known by: digest, columns, their types, separator and bound."""
    types = list(given.types.values())
    return given.sha256, list(given.types), types, given.separator, given.max_missing_share


def _insert(connection: duckdb.DuckDBPyConnection, run_id: str, given: Attributes) -> None:
    ids = given.texts[f"{given.side}_id"]
    cells = [
        pl.DataFrame({"id": ids, "value": given.texts[name]}).with_columns(name=pl.lit(name)) for name in given.types
    ]
    warehouse.insert(connection, "raw.attributes", pl.concat(cells).with_columns(side=pl.lit(given.side)))
    connection.execute(
        sql.statement("attributes/record"),
        {
            "side": given.side,
            "path": str(given.path),
            "sha256": given.sha256,
            "rows": given.texts.height,
            "columns": list(given.types),
            "types": list(given.types.values()),
            "separator": given.separator,
            "max_missing_share": given.max_missing_share,
            "run_id": run_id,
        },
    )
    logger.info("%s: %s %ss with %d attributes", given.path, f"{given.texts.height:,}", given.side, len(given.types))


def _warn_of_other_ids(connection: duckdb.DuckDBPyConnection, given: Attributes) -> None:
    """Warn where the table describes few of the ids of the log, which it may write in another way."""
    connection.register("described", given.texts.select(pl.col(f"{given.side}_id").alias("id")))
    known, ids, example = warehouse.select(connection, "attributes/described_ids", {"side": given.side}).row(0)
    connection.unregister("described")
    if known < LEAST_KNOWN_SHARE * ids:
        logger.warning(
            "%s: describes %s of the %s %ss of the log; it lacks %s, for one. Ids must be written as in the log",
            given.path,
            f"{known:,}",
            f"{ids:,}",
            given.side,
            example,
        )
