"""Land the new rows of a SQL query as an immutable Parquet file in the landing folder.

A query takes the rows from a boundary on: the highest mark that was taken, less `overlap`. Those that were taken before
are left out, by comparing rows, so rows that share a mark and rows that are committed late are taken once each.

The landed files themselves say what was taken: renaming one into its place is the commit. As ingested files may be
removed, their rows from the boundary on are copied to `.source-taken-NUMBER.parquet`, NUMBER being that of the last
landed file; files with higher numbers are added to it before anything else is done with them.
"""

import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from oneclass import sql
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.source import Source
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.ingest import database, parquet
from oneclass.tasks.stores import durable, warehouse
from oneclass.tasks.stores.home import Home, escape_path

logger = logging.getLogger(__name__)

LANDED = re.compile(r"source-\d{4}-\d\d-\d\d-(\d{6,})\.parquet(\.\d+)?")  # numbered once more in the quarantine
TAKEN = re.compile(r"\.source-taken-(\d{6,})\.parquet")
PARTIAL = ".source-partial"
NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DECIMAL", "FLOAT", "DOUBLE")
ISO_TEXT = r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?Z?)?"


@dataclass(frozen=True)
class _Mark:
    """The column of the high-water mark: its name as SQL, and its type in DuckDB."""

    column: str
    duckdb_type: str

    @property
    def is_number(self) -> bool:
        return self.duckdb_type.startswith(NUMBERS)

    def is_comparable(self) -> str:
        """Return the condition that a mark is ordered by DuckDB as by the database."""
        if self.is_number:
            return f"isfinite({self.column}::double)"
        is_iso = f"regexp_full_match({self.column}, '{ISO_TEXT}') and " if self.duckdb_type == "VARCHAR" else ""
        return f"{is_iso}try_cast({self.column} as timestamptz) >= timestamptz '0001-01-01 00:00:00+00'"

    def is_past(self) -> str:
        """Return the condition that the column `mark` of `taken` is no time of the future."""
        return "true" if self.is_number else "try_cast(mark as timestamptz) <= now() + interval 1 day"

    def check_overlap(self, source: Source) -> None:
        """Check that the overlap can be subtracted from the mark.

        Raises:
            InputError: it cannot.
        """
        if bool(source.overlap) and self.is_number == isinstance(source.overlap, str):
            form = "a number, as the mark is one" if self.is_number else "30m, 2h or 1d, as the mark is a time"
            raise InputError(f"[source] overlap = {source.overlap!r}: write {form}.")

    def lower(self, source: Source) -> str:
        """Return the column `mark` less the overlap."""
        if self.is_number:
            below = f"(mark - cast({source.overlap or 0} as {self.duckdb_type}))"
            # A number may have been rounded on its way.
            is_float = self.duckdb_type in ("FLOAT", "DOUBLE")
            return f"nextafter({below}, cast('-inf' as {self.duckdb_type}))" if is_float else below
        seconds = source.overlap_seconds
        if self.duckdb_type == "VARCHAR":
            # From the day's beginning, as texts of several forms are ordered by their days alone.
            return f"strftime(try_cast(mark as timestamp) - interval {seconds} second, '%Y-%m-%d')"
        return f"cast(mark - interval {seconds} second as {self.duckdb_type})"


@dataclass(frozen=True)
class _Taken:
    """What was taken: the table `taken`, up to the landed file of this number.

    Attributes:
        boundary: the least mark of the table's rows, and of the next query's.
        literal: the boundary in SQL.
    """

    number: int = 0
    boundary: str | None = None
    literal: str | None = None


def land_query(home: Home, dataset: Dataset, source: Source) -> None:
    """Land the rows of the query that were not taken before, if there are any.

    Raises:
        InputError: the database cannot be read, or its rows cannot be a log; nothing was landed.
    """
    durable.make_folder(home.landing)
    try:
        with duckdb.connect(config=warehouse.database_config(home)) as connection:
            connection.execute("set TimeZone = 'UTC'")
            taken = _load_taken(connection, home, source)
            landed = _land_new_rows(connection, home, dataset, source, taken)
            boundary = _load_taken(connection, home, source).boundary
    except (duckdb.BinderException, duckdb.ConversionException) as error:
        raise InputError(
            f"[source]: the rows of the query do not go with those that were landed ({str(error).splitlines()[0]}). "
            f"Undo the last change of [source], or take all rows anew: empty {home.landing}, hidden files too, and run "
            "with --replace."
        ) from error
    except OSError as error:
        raise OneclassError(
            f"{home.landing}: the rows of [source] cannot be written ({error.strerror}). Free some space, or choose "
            "another --home, then run again."
        ) from error
    finally:
        for leftover in home.landing.glob(f"{PARTIAL}*"):
            leftover.unlink()
    what = f"landed {landed[1]:,} rows as {landed[0]}" if landed else "the query has no new rows"
    logger.info("[source]: %s; the next query begins at %s = %s", what, source.high_water_mark, boundary)


def _land_new_rows(
    connection: duckdb.DuckDBPyConnection, home: Home, dataset: Dataset, source: Source, taken: _Taken
) -> tuple[Path, int] | None:
    """Land the new rows and return the file and their number, or None without any."""
    fetched, partial = (home.landing / f"{PARTIAL}-{name}.parquet" for name in ("fetched", "new"))
    with database.open_cursor(source) as cursor:
        if unmarked := database.count_unmarked(cursor, source):
            logger.warning("[source]: %d rows have no %s, so they are not taken", unmarked, source.high_water_mark)
        if not database.fetch_rows(cursor, source, fetched, at_least=taken.literal or ""):
            return None
    connection.execute(f"create temp view fetched as from {_scan(fetched)}")
    mark = _find_mark(connection, "fetched", source.high_water_mark)
    mark.check_overlap(source)
    statement = sql.statement(
        "query_source/incomparable", mark=mark.column, type=mark.duckdb_type, is_comparable=mark.is_comparable()
    )
    if strange := connection.execute(statement, {"boundary": taken.boundary}).fetchone():
        raise InputError(
            f"[source] high_water_mark: {source.high_water_mark} is {strange[0]} in a row, which cannot be compared "
            "with others. Use a column of numbers, dates or times, or leave such rows out in the query."
        )
    new = "from fetched" if taken.boundary is None else _new_rows(connection, source, mark)
    connection.execute(f"copy ({new}) to {_quote_text(str(partial))} (format parquet, compression zstd)")
    rows = warehouse.fetch_row(connection, f"select count(*) from {_scan(partial)}")[0]
    if not rows:
        return None
    try:
        parquet.detect_parquet_format(partial, dataset)
    except InputError as error:
        raise InputError(str(error).replace(str(partial), "[source] query")) from error
    path = home.landing / f"source-{datetime.now(UTC):%Y-%m-%d}-{taken.number + 1:06}.parquet"
    durable.install_file(partial, path)
    return path, rows


def _new_rows(connection: duckdb.DuckDBPyConnection, source: Source, mark: _Mark) -> str:
    """Return the statement with the fetched rows that are not in `taken`."""
    before = {name for (name,) in connection.execute(sql.statement("query_source/shared_columns")).fetchall()}
    shared = [name for name in connection.sql("from fetched").columns if name in before]
    compared = list(source.key) if source.key and set(source.key) <= set(shared) else shared
    return sql.statement(
        "query_source/new_rows",
        mark=mark.column,
        taken_key=f"[{', '.join(f'cells[{_quote_text(name)}]' for name in compared)}]",
        fetched_key=f"[{', '.join(f'{_quote_name(name)}::varchar' for name in compared)}]",
    )


def _load_taken(connection: duckdb.DuckDBPyConnection, home: Home, source: Source) -> _Taken:
    """Make the table `taken` of the last copy and the files that were landed after it, and copy it if there are such.

    Raises:
        InputError: the copy was made by another mark.
    """
    copies = {int(match[1]): path for path in home.landing.iterdir() if (match := TAKEN.fullmatch(path.name))}
    number = max(copies, default=0)
    files = {
        int(match[1]): path
        for path in home.landing.rglob("source-*")
        if (match := LANDED.fullmatch(path.name)) and int(match[1]) > number
    }
    if not copies and not files:
        return _Taken()
    boundary = _read_boundary(connection, home, source, copies[number]) if copies else None
    selects = [f"select mark, cells from {_scan(copies[number])}"] if copies else []
    selects += [_select_cells(connection, path, source) for _, path in sorted(files.items())]
    connection.execute(f"create or replace temp view landed as {' union all '.join(selects)}")
    mark = _find_mark(connection, "landed", "mark")
    if files:
        statement = sql.statement(
            "query_source/next_boundary", type=mark.duckdb_type, is_past=mark.is_past(), lower=mark.lower(source)
        )
        boundary = str(warehouse.fetch_row(connection, statement, {"boundary": boundary})[0])
        number = max(files)
    statement = f"create or replace temp table taken as from landed where mark >= cast(? as {mark.duckdb_type})"
    connection.execute(statement, [boundary])
    if files:
        _save_taken(connection, home, source, number, str(boundary))
        for path in copies.values():
            path.unlink()
    return _Taken(number, boundary, boundary if mark.is_number else _quote_text(str(boundary)))


def _read_boundary(connection: duckdb.DuckDBPyConnection, home: Home, source: Source, copy: Path) -> str:
    statement = f"select decode(key), decode(value) from parquet_kv_metadata({_quote_path(copy)})"
    facts = dict(connection.execute(statement).fetchall())
    if facts["high_water_mark"] != source.high_water_mark:
        raise InputError(
            f"[source] high_water_mark = {source.high_water_mark!r}: rows were landed by {facts['high_water_mark']}. "
            f"Set that again, or take all rows anew: empty {home.landing}, hidden files too, and run with --replace."
        )
    return facts["boundary"]


def _save_taken(connection: duckdb.DuckDBPyConnection, home: Home, source: Source, number: int, boundary: str) -> None:
    partial = home.landing / f"{PARTIAL}-taken.parquet"
    facts = f"{{high_water_mark: {_quote_text(source.high_water_mark)}, boundary: {_quote_text(boundary)}}}"
    connection.execute(
        f"copy taken to {_quote_text(str(partial))} (format parquet, compression zstd, kv_metadata {facts})"
    )
    durable.install_file(partial, home.landing / f".source-taken-{number:06}.parquet")


def _select_cells(connection: duckdb.DuckDBPyConnection, path: Path, source: Source) -> str:
    """Return the statement with the mark and the columns of each row of a landed file."""
    relation = _scan(path)
    columns = connection.sql(f"from {relation}").columns
    return sql.statement(
        "query_source/landed",
        relation=relation,
        mark=_find_mark(connection, relation, source.high_water_mark).column,
        names=f"[{', '.join(map(_quote_text, columns))}]",
        texts=f"[{', '.join(f'{_quote_name(name)}::varchar' for name in columns)}]",
    )


def _find_mark(connection: duckdb.DuckDBPyConnection, relation: str, name: str) -> _Mark:
    """Find the column of the mark, in any case, as databases fold names."""
    scan = connection.sql(f"from {relation}")
    types = {column.casefold(): (column, str(one)) for column, one in zip(scan.columns, scan.types, strict=True)}
    column, duckdb_type = types.get(name.casefold(), (name, "none"))
    if not duckdb_type.startswith((*NUMBERS, "DATE", "TIMESTAMP", "VARCHAR")):
        raise InputError(
            f"[source] high_water_mark: {name} has the type {duckdb_type}. Name a column of numbers, dates or times."
        )
    return _Mark(_quote_name(column), "HUGEINT" if "INT" in duckdb_type else duckdb_type)  # the overlap may be larger


def _scan(path: Path) -> str:
    return f"read_parquet({_quote_path(path)}, hive_partitioning = false)"


def _quote_path(path: Path) -> str:
    return _quote_text(escape_path(path))


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
