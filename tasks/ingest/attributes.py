"""Read the tables that come with a data set, titles and attributes of items and users; keep the attributes."""

import csv
import io
import logging
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, get_args

import duckdb
import polars as pl

from oneclass.tasks.attributes import Side, Version, convert_column, load_version
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.columns import AttributeTable
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import files
from oneclass.tasks.ingest.files import hash_file
from oneclass.tasks.ingest.landing import refuse_unreadable
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import escape_path

logger = logging.getLogger(__name__)

ID_COLUMNS = {
    "item": ("item_id", "itemid", "movieid", "movie_id", "item", "id"),
    "user": ("user_id", "userid", "customer_id", "customerid", "user", "customer", "id"),
}
TITLE_COLUMNS = ("title", "name", "item_name", "movie_title")
DELIMITERS = (",", "\t", ";", "|")
ROW = ""  # names the column with the number of each row in its file; no other has no name
LEAST_KNOWN_SHARE = 0.5  # of the log's ids; where fewer are described, the ids may be written in two ways


class Table(NamedTuple):
    """A table that comes with a data set, as text.

    Attributes:
        place: for messages: the section of the data set's file that names its columns, and the table's path.
        cells: without outer blanks, null where empty; and the column `ROW`.
    """

    place: str
    cells: pl.DataFrame

    def find_column(self, key: str, declared: str, usual: Sequence[str] = ()) -> str:
        """Return the column that is declared under a key, else the first of the usual names, in any case.

        Raises:
            InputError: the table has none of them.
        """
        names = {name.lower(): name for name in self.cells.columns if name != ROW}
        wanted = [name.lower() for name in ([declared] if declared else usual)]
        if found := next((name for name in wanted if name in names), None):
            return names[found]
        raise InputError(
            f"{self.place}: has the columns {', '.join(names.values())[:200]}, and none is called "
            f"{declared or f'{wanted[0]}, or by another usual name'}. State its name in the data set's file:\n\n"
            f'{self.place.split()[0]}\n{key} = "COLUMN"'
        )

    def select_ids(self, column: str, dataset: Dataset) -> pl.Expr:
        """Return the ids in a column, written as those of logs: 17 for 17.0; null where missing."""
        ids = pl.col(column).str.replace(r"^(-?\d+)\.0+$", "$1")
        return pl.when(~ids.is_in(dataset.missing_ids)).then(ids)


def read_titles(path: Path, dataset: Dataset) -> dict[str, str]:
    """Return a dictionary of item id to title, from the columns that the data set's file names or usual ones.

    Raises:
        InputError: the file is unreadable, or lacks a column of ids or titles.
    """
    declared, usual = dataset.titles, (*dataset.columns.accepted("item"), *ID_COLUMNS["item"])
    section, key = ("items", "id") if dataset.items and dataset.items.title else ("titles", "item")
    table = _read_table(path, section, declared.item, dataset)
    ids = table.select_ids(table.find_column(key, declared.item, usual), dataset)
    titles = table.find_column("title", declared.title, TITLE_COLUMNS)
    return dict(table.cells.select(ids.alias("id"), pl.col(titles).alias("title")).drop_nulls().iter_rows())


def read_attributes(side: Side, declared: AttributeTable, dataset: Dataset) -> tuple[Version, pl.DataFrame]:
    """Read the table of a side, in any format that logs may have. Rows that repeat an earlier one are left out.

    Returns:
        Its version, and `item_id` or `user_id` and each column as text, null where a cell is empty.

    Raises:
        InputError: the file is unreadable, lacks a declared column, has an empty id or two rows of one id, or a cell of
            a column of numbers is not a number.
    """
    table = _read_table(Path(declared.file), f"{side}s", declared.id, dataset, declared.separator)
    usual, ids = (*dataset.columns.accepted(side), *ID_COLUMNS[side]), f"{side}_id"
    given = table.find_column("id", declared.id, usual)
    columns = {table.find_column(kind, name): name for name, kind in declared.kinds.items()}
    columns |= {name: name for name in table.cells.columns if name not in (ROW, given, *columns)}
    if not columns:
        raise InputError(f"{table.place}: has no column but the ids. Add some, or leave out [{side}s].")
    if ids in map(str.lower, columns):
        raise InputError(f"{table.place}: has a column {ids} beside {given}, that of the ids. Rename it.")
    cells = (pl.col(name).alias(called) for name, called in columns.items())
    rows = table.cells.select(table.select_ids(given, dataset).alias(ids), ROW, *cells)
    rows = rows.unique([ids, *columns.values()], keep="first", maintain_order=True)
    _check_cells(table.place, rows, ids, declared.number)
    names = list(columns.values())
    types = [declared.kinds.get(name) or _infer_type(rows[name]) for name in names]
    limits = declared.separator, declared.max_missing_share
    return Version(hash_file(declared.file), names, types, *limits), rows.drop(ROW)


def _check_cells(place: str, rows: pl.DataFrame, ids: str, numbers: Sequence[str]) -> None:
    faults = [
        (ids, pl.col(ids).is_null(), "is no id. Add one, or drop the row"),
        (ids, ~pl.col(ids).is_first_distinct(), "has an earlier row with other cells. Keep one row for each id"),
    ]
    for name in numbers:
        is_number = pl.col(name).cast(pl.Float64, strict=False).is_finite().fill_null(value=False)
        advice = "is not a number. Correct the cell, or move the column from `number` to `category` or `text`"
        faults.append((name, pl.col(name).is_not_null() & ~is_number, advice))
    for name, is_fault, advice in faults:
        for row, cell in rows.filter(is_fault).select(ROW, name).head(1).iter_rows():
            raise InputError(f"{place}, row {row}: {name} = {cell or ''!r} {advice}.")


def _read_table(path: Path, section: str, id_column: str, dataset: Dataset, separator: str = "|") -> Table:
    """Read delimited text, JSON lines or an array, a workbook or Parquet, packed or not.

    Args:
        id_column: as declared; a number says that the table has no header.
        separator: to put between the values of a list.

    Raises:
        InputError: the file is unreadable or empty, or a row is malformed.
    """
    place, before = f"[{section}] table {path}", 0
    with refuse_unreadable(path), duckdb.connect() as connection, tempfile.TemporaryFile() as copy:
        # The copy has no name, so that nothing of it is left if the run is killed.
        file = f"/proc/self/fd/{copy.fileno()}"
        try:
            if (container := files.detect_container(path)) == "parquet":
                rows = connection.read_parquet(escape_path(path), hive_partitioning=False)
            else:
                with files.open_text(path, container) as stream:
                    whole = re.sub(r"\r\n?", "\n", _decode(stream.read(), dataset.encoding))
                text = re.sub(r"\A([^\S\n]*(#[^\n]*)?\n)*", "", whole)
                before = whole.count("\n") - text.count("\n")
                if not text.strip():
                    raise InputError(f"{place}: is empty.")
                copy.write(text.encode())
                copy.flush()
                if text.lstrip().startswith("{"):
                    rows = _parse_json(connection, place, file, before)
                else:
                    rows, has_header = _parse_delimited(connection, place, file, before, text, id_column)
                    before += has_header
            return Table(place, _fetch_texts(rows, separator).with_row_index(ROW, before + 1))
        except duckdb.Error as error:
            reason = str(error).splitlines()[0].replace(file, path.name)
            raise InputError(f"{place}: cannot be read ({reason}). Correct the file, or fetch it again.") from error


def _decode(data: bytes, encoding: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode(encoding or "windows-1252", errors="replace")


def _parse_json(connection: duckdb.DuckDBPyConnection, place: str, file: str, before: int) -> duckdb.DuckDBPyRelation:
    values = "read_json_objects(?, format = 'newline_delimited', ignore_errors = true)"
    kinds = f"select json_type(json) as kind, row_number() over () as row from {values}"
    wrong = f"select row from ({kinds}) where kind is distinct from 'OBJECT' order by row limit 1"
    for (row,) in connection.execute(wrong, [file]).fetchall():
        raise InputError(f"{place}, row {before + row}: is not a JSON object. Correct or drop it.")
    return connection.read_json(
        file, format="newline_delimited", maximum_depth=1, sample_size=-1, map_inference_threshold=-1,
        field_appearance_threshold=0.0,
    )  # fmt: skip


def _parse_delimited(
    connection: duckdb.DuckDBPyConnection, place: str, file: str, before: int, text: str, id_column: str
) -> tuple[duckdb.DuckDBPyRelation, bool]:
    """Return the rows, and whether a header is above them. A column without a name is named by its number, from 1."""
    first = re.sub(r'"[^"\n]*"', "", text).partition("\n")[0]
    delimiter = "::" if "::" in first else max(DELIMITERS, key=first.count)
    quote = '"' if delimiter in (",", ";", "|") else ""  # as logs are read
    names = next(csv.reader(io.StringIO(text), delimiter=delimiter)) if quote else first.split(delimiter)
    numbers = [str(number) for number in range(1, len(names) + 1)]
    has_header = delimiter != "::" and not id_column.isdigit()
    names = [name.strip() or number for name, number in zip(names, numbers, strict=True)] if has_header else numbers
    if delimiter == "::" and not id_column:
        names[:2] = ["id", "title"]  # MovieLens' older files have no header
    if twice := [name for name, count in Counter(map(str.lower, names)).items() if count > 1]:
        raise InputError(f"{place}, row {before + 1}: has two columns called {twice[0]}. Rename one.")
    connection.read_csv(
        file, header=has_header, columns=dict.fromkeys(names, "VARCHAR"), delimiter=delimiter, quotechar=quote,
        escapechar=quote, auto_detect=False, store_rejects=True,
    ).create("rows")  # fmt: skip
    rejected = "select line, error_message from reject_errors order by line limit 1"
    for row, message in connection.execute(rejected).fetchall():
        advice = "Put quotes around a field that holds the delimiter; close each quote, or double it in a field."
        raise InputError(f"{place}, row {before + row}: is malformed ({message.rstrip('. ')}). {advice}")
    return connection.table("rows"), has_header


def _fetch_texts(rows: duckdb.DuckDBPyRelation, separator: str) -> pl.DataFrame:
    """Fetch columns as texts without outer blanks: lists joined, what is empty or not a number as null."""
    between, texts = "'" + separator.replace("'", "''") + "'", []
    for name, kind in zip(rows.columns, rows.types, strict=True):
        column = '"' + name.replace('"', '""') + '"'
        text = f"nullif({column}::varchar, 'nan')" if kind.id in ("float", "double") else f"{column}::varchar"
        if str(kind) == "JSON":
            joined = f"array_to_string({column} ->> '$[*]', {between})"
            text = f"if(json_type({column}) = 'ARRAY', {joined}, {column} ->> '$')"
        elif kind.id == "list":
            text = f"array_to_string({column}::varchar[], {between})"
        texts.append(f"{text} as {column}")
    return rows.project(", ".join(texts)).pl().select(pl.all().str.strip_chars().replace("", None))


def _infer_type(column: pl.Series) -> str:
    """Return the narrowest type that all values of a column have; varchar if it has none."""
    found = column.drop_nulls()
    for kind in ("boolean", "bigint", "double", "date", "timestamp"):
        values = found.to_frame().select(convert_column(pl.col(found.name), kind, "")).to_series()
        if len(found) and values.null_count() == 0:
            return kind
    return "varchar"


def store_attributes(connection: duckdb.DuckDBPyConnection, run_id: str, dataset: Dataset) -> None:
    """Read the data set's tables of attributes, and replace those in `raw.attributes` that changed.

    Raises:
        InputError: as `read_attributes`.
    """
    for side in get_args(Side):
        declared, current = getattr(dataset, f"{side}s"), load_version(connection, side)
        version, texts = read_attributes(side, declared, dataset) if declared else (None, pl.DataFrame())
        if version and current == version:
            continue
        if current:
            connection.execute("update operations.attribute_tables set is_current = false where side = ?", [side])
            connection.execute("delete from raw.attributes where side = ?", [side])
        if version:
            record = {"side": side, "path": declared.file, "rows": len(texts), "run_id": run_id, "is_current": True}
            warehouse.insert(connection, "operations.attribute_tables", pl.DataFrame([record | version._asdict()]))
            for name in version.columns:
                cells = texts.select(id=f"{side}_id", value=name, side=pl.lit(side), name=pl.lit(name))
                warehouse.insert(connection, "raw.attributes", cells)
            found = f"{len(texts):,} {side}s with {len(version.columns):,} attributes"
            logger.info("%s: %s", declared.file, found)
            _warn_of_other_ids(connection, side, declared.file)


def _warn_of_other_ids(connection: duckdb.DuckDBPyConnection, side: Side, file: str) -> None:
    """Warn where a table describes few of the ids of the log, which it may write in another way."""
    known, ids, example = warehouse.select(connection, "attributes/described_ids", {"side": side}).row(0)
    if known < LEAST_KNOWN_SHARE * ids:
        described = f"{known:,} of the {ids:,} {side}s of the log; it lacks {example}, for one"
        logger.warning("%s: describes %s. Ids must be written as in the log", file, described)
