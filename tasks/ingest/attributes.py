"""Read the tables that come with a data set, titles and attributes of items and users; keep the attributes."""

import logging
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import duckdb
import polars as pl

from oneclass.tasks.attributes import Side, Version, convert_column, load_version
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.sections import KNOWN_NAMES, AttributeTable
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import files, layouts
from oneclass.tasks.ingest.landing import refuse_unreadable
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import escape_path

logger = logging.getLogger(__name__)

TITLE_COLUMNS = ("title", "name", "item_name", "movie_title")
LEAST_KNOWN_SHARE = 0.5  # of the log's ids; where fewer are described, the ids may be written in two ways


def read_titles(path: Path, dataset: Dataset) -> dict[str, str]:
    """Return a dictionary of item id to title, from the columns that the data set's file names or usual ones.

    Raises:
        InputError: the file is unreadable, or lacks a column of ids or titles.
    """
    wanted = [("item", dataset.titles.item), ("title", dataset.titles.title)]
    _, cells, found = _read_table(path, dataset, "titles", wanted)
    return dict(cells.select(id=found[0], title=found[1]).drop_nulls().iter_rows())


def read_attributes(side: Side, declared: AttributeTable, dataset: Dataset) -> tuple[Version, pl.DataFrame]:
    """Read the table of a side, in any format that logs may have. Rows that repeat an earlier one are left out.

    Returns:
        Its version, and `item_id` or `user_id` and each column as text, null where a cell is empty.

    Raises:
        InputError: as `_read_table`, or an id is empty or has two rows, or a cell of a column of numbers is no number.
    """
    path, ids = Path(declared.file), f"{side}_id"
    wanted = [("id", declared.id), *((kind, name) for name, kind in declared.kinds.items())]
    first, cells, found = _read_table(path, dataset, f"{side}s", wanted, declared.separator)
    given, *features = found
    names = dict(zip(features, declared.kinds, strict=True))
    names |= {name: name for name in cells.columns if name not in found}
    if not names:
        raise InputError(f"{path}: has no column but the ids. Add some, or leave out [{side}s].")
    if ids in map(str.lower, names):
        raise InputError(f"{path}: has a column {ids} beside {given}, that of the ids. Rename it.")
    rows = cells.select(pl.col(given).alias(ids), *(pl.col(name).alias(called) for name, called in names.items()))
    is_new, is_first = pl.struct(rows.columns).is_first_distinct(), pl.col(ids).is_first_distinct()
    faults = [
        (ids, pl.col(ids).is_null(), "is no id. Add one, or drop the row"),
        (ids, is_new & ~is_first, "has an earlier row with other cells. Keep one row for each id"),
    ]
    numbers = {name: pl.col(name).cast(pl.Float64, strict=False).is_finite() for name in declared.number}
    advice = "is not a number. Correct the cell, or move the column from `number` to `category` or `text`"
    faults += [(name, ~is_finite.fill_null(pl.col(name).is_null()), advice) for name, is_finite in numbers.items()]
    for name, is_fault, advice in faults:
        for at in rows.select(is_fault.arg_true()).head(1).to_series():
            raise InputError(f"{path}, row {first + at}: {name} = {rows[name][at] or ''!r} {advice}.")
    columns = list(names.values())
    types = [declared.kinds.get(name) or _infer_type(rows[name]) for name in columns]
    version = Version(files.hash_file(path), columns, types, declared.separator, declared.max_missing_share)
    return version, rows.unique(maintain_order=True)


def _read_table(
    path: Path, dataset: Dataset, section: str, wanted: Sequence[tuple[str, str]], separator: str = "|"
) -> tuple[int, pl.DataFrame, list[str]]:
    """Read delimited text, JSON, a workbook or Parquet, packed or not, as text; null where a cell is empty.

    Args:
        wanted: (key in the section, declared name, a number in a table without a header) of each column, ids first.

    Returns:
        The number of the first row, the cells, and the wanted columns.
    """
    first, text = 1, "columns(*)::varchar"
    # The copy has no name, so that nothing of it is left if the run is killed.
    with refuse_unreadable(path), duckdb.connect() as connection, tempfile.TemporaryFile() as copy:
        file = f"/proc/self/fd/{copy.fileno()}"
        if (container := files.detect_container(path)) == "parquet":
            rows = connection.read_parquet(escape_path(path), hive_partitioning=False)
        else:
            with files.open_text(path, container) as stream:
                encoding = "" if files.scan_stream(stream).is_utf8 else dataset.encoding or "windows-1252"
            with files.open_text(path, container, encoding) as stream:
                files.copy_text(stream, Path(file))
            head = copy.read(files.HEAD_BYTES).decode("utf-8-sig", "ignore")
            if (mark := head.lstrip()[:1]) in ("{", "["):
                text, form = "columns(*) ->> '$'", "array" if mark == "[" else "auto"
                rows = connection.read_json(
                    file, format=form, records="true", maximum_depth=1, sample_size=-1, map_inference_threshold=-1
                )
            else:
                rows, first = _read_delimited(connection, path, file, head.split("\n"), dataset, wanted[0][1])
        value, between = "to_json(columns(*))", separator.replace("'", "''")
        joined = f"array_to_string({value} ->> '$[*]', '{between}')"
        cells = rows.project(f"if(json_type({value}) = 'ARRAY', {joined}, {text})").pl()
    columns, found = {name.lower(): name for name in cells.columns}, list[str]()
    side = "user" if section == "users" else "item"
    usual = {wanted[0][0]: (*dataset.columns.accepted(side), *KNOWN_NAMES[side], "id"), "title": TITLE_COLUMNS}
    for key, declared in wanted:
        names = (declared,) if declared else usual[key]
        if not (matches := [columns[name.lower()] for name in names if name.lower() in columns]):
            raise InputError(
                f"{path}: has the columns {', '.join(cells.columns)[:200]}, and none is called {names[0]}"
                f"{'' if declared else ', or by another usual name'}. State its name in the data set's file:\n\n"
                f'[{section}]\n{key} = "COLUMN"'
            )
        found.append(matches[0])
    # Ids are written as those of logs: 17 for 17.0.
    ids = pl.col(found[0]).str.replace(r"^(-?\d+)\.0+$", "$1").replace(dataset.missing_ids, None)
    return first, cells.select(pl.all().str.strip_chars().replace(["", "nan"], None)).with_columns(ids), found


def _read_delimited(
    connection: duckdb.DuckDBPyConnection, path: Path, file: str, lines: list[str], dataset: Dataset, id_column: str
) -> tuple[duckdb.DuckDBPyRelation, int]:
    """Return the rows, and the number of the first. A column without a name is named by its number, from 1."""
    skip = next((number for number, line in enumerate(lines) if not re.match(r"\s*(#|$)", line)), len(lines))
    if skip == len(lines):
        raise InputError(f"{path}: is empty.")
    layout = layouts.Layout("delimited", layouts.choose_delimiter(lines[skip:], dataset))
    has_header, quote = layout.delimiter != "::" and not id_column.isdigit(), '"' if layout.is_quoted else ""
    names = layouts.split_rows(lines[skip:], layout)[0]
    names = [(name.strip() if has_header else "") or str(at) for at, name in enumerate(names, 1)]
    if layout.delimiter == "::" and not id_column:
        names[:2] = ["id", "title"]  # MovieLens' older files have no header
    if len({*map(str.lower, names)}) < len(names):
        raise InputError(f"{path}, row {skip + 1}: two of the columns {', '.join(names)[:200]} have one name.")
    columns = dict.fromkeys(names, "VARCHAR")
    rows = connection.read_csv(
        file, header=has_header, skiprows=skip, columns=columns, delimiter=layout.delimiter, quotechar=quote,
        escapechar=quote, auto_detect=False,
    )  # fmt: skip
    return rows, skip + has_header + 1


def _infer_type(column: pl.Series) -> str:
    """Return the narrowest type that all values of a column have; varchar if it has none."""
    found = column.drop_nulls()
    for kind in ("boolean", "bigint", "double", "date", "timestamp") if len(found) else ():
        if not found.to_frame().select(convert_column(pl.col(found.name), kind, "").has_nulls()).item():
            return kind
    return "varchar"


def store_attributes(connection: duckdb.DuckDBPyConnection, run_id: str, dataset: Dataset) -> None:
    """Read the data set's tables of attributes, and replace those in `raw.attributes` that changed.

    Raises:
        InputError: as `read_attributes`.
    """
    for side in get_args(Side):
        declared = getattr(dataset, f"{side}s")
        version, texts = read_attributes(side, declared, dataset) if declared else (None, pl.DataFrame())
        if version == load_version(connection, side):
            continue
        connection.execute("update operations.attribute_tables set is_current = false where side = ?", [side])
        connection.execute("delete from raw.attributes where side = ?", [side])
        if not version:
            continue
        record = {"side": side, "path": declared.file, "rows": len(texts), "run_id": run_id, "is_current": True}
        warehouse.insert(connection, "operations.attribute_tables", pl.DataFrame([record | version._asdict()]))
        for name in version.columns:
            cells = texts.select(id=f"{side}_id", value=name, side=pl.lit(side), name=pl.lit(name))
            warehouse.insert(connection, "raw.attributes", cells)
        logger.info("%s: %s %ss with %s attributes", declared.file, f"{len(texts):,}", side, len(version.columns))
        known, ids, example = warehouse.select(connection, "ingest/described_ids", {"side": side}).row(0)
        if known < LEAST_KNOWN_SHARE * ids:
            described = f"{known:,} of the {ids:,} {side}s of the log; it lacks {example}, for one"
            logger.warning("%s: describes %s. Ids must be written as in the log", declared.file, described)
