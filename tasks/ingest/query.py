"""The third door for logs: land the result of a data set's query as Parquet, which the first door reads.

A query without `{since}` gives all events each night: they are `source.parquet`, replaced if the result changed. One
with `{since}` gives those from the newest time on that was read. Its rows are compared with the landed files, so that
ties and late rows are taken once each; the rest is `source-NUMBER.parquet`. Renaming a file into its place is the
commit, whatever is killed before or after.
"""

import contextlib
import filecmp
import importlib
import logging
import os
import re
from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
from pyarrow import parquet

from oneclass import sql
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.source import LANDED, Source
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.ingest.landing import list_landing_files
from oneclass.tasks.ingest.sources import SourceScanner
from oneclass.tasks.secrets import hide_secrets, read_secret
from oneclass.tasks.stores import durable, warehouse
from oneclass.tasks.stores.home import Home, escape_path

logger = logging.getLogger(__name__)

FIRST_SINCE = "1000-01-01"


def land_query(home: Home, dataset: Dataset, source: Source, *, replace: bool = False) -> None:
    """Land the rows of a data set's query that are new, if there are any.

    Args:
        replace: whether the warehouse is made anew, so that only rows of files that are read again were landed.

    Raises:
        InputError: the query cannot be run, or its rows are no log; nothing was landed.
    """
    durable.make_folder(home.landing)
    files = [path for path in home.landing.rglob("source*") if LANDED.fullmatch(path.name)]
    newest, logs = (None, []) if replace else _load_progress(home)
    numbers = [int(match[1] or 0) for path in (*files, *logs) if (match := LANDED.fullmatch(path.name))]
    landed = [files, [*home.landing.glob(".source-taken-*.parquet")]]  # of an earlier version, as texts
    if replace:
        landed = [[*{*files} & {*list_landing_files(home.landing)}]]
    if not source.is_incremental and any(numbers):
        raise InputError(
            f"{_name(source)} has no {{since}}, so that rows which earlier nights landed would count twice. Write "
            f"{{since}} in it, or delete all source-*.parquet below {home.landing} and run with --replace."
        )
    name = f"source-{max(numbers, default=0) + 1:06}.parquet" if source.is_incremental else "source.parquet"
    target = home.landing / name
    fetched, new = (home.landing / f".source-partial-{part}.parquet" for part in ("fetched", "new"))
    try:
        _fetch_rows(home, dataset, source, _format_since(newest, dataset.timezone), fetched)
        rows = _write_new_rows(home, fetched, new, landed if source.is_incremental else [])
        if not rows or (target.exists() and filecmp.cmp(new, target, shallow=False)):
            logger.info("[source]: the query has no new rows")
            return
        try:
            SourceScanner(dataset).scan([new])
        except InputError as error:
            error.args = (str(error).replace(str(new), _name(source)),)
            raise
        durable.install_file(new, target)
        logger.info("[source]: landed %s rows as %s", f"{rows:,}", target)
    except (OSError, duckdb.Error) as error:
        raise OneclassError(
            f"{home.landing}: the rows of [source] cannot be landed there ({error}). Free some space if the disk is "
            "full, or choose another --home, then run again."
        ) from error
    finally:
        for leftover in home.landing.glob(".source-partial-*"):
            leftover.unlink()


def fetch_sample(dataset: Dataset, source: Source, target: Path, rows: int) -> None:
    """Write the first rows of a data set's query to a Parquet file. Raises errors as `land_query` does."""
    _fetch_rows(Home(target.parent.parent, target.parent.name), dataset, source, FIRST_SINCE, target, rows)


def _load_progress(home: Home) -> tuple[datetime | None, list[Path]]:
    """Return the newest time that was read, and the paths of the logs in the warehouse."""
    if not home.warehouse.exists():
        return None, []
    with warehouse.open_warehouse(home) as connection:  # for writing, to migrate an older warehouse
        logs = connection.execute("select path from operations.log_files").fetchall()
        return warehouse.fetch_row(connection, sql.statement("query/newest"))[0], [Path(path) for (path,) in logs]


def _format_since(newest: datetime | None, timezone: str) -> str:
    """Format a time in a time zone as its shortest text, which sorts before its other forms where times are texts.

    A time that comes twice, as clocks go back, is given as of an hour earlier: both may be meant.
    """
    if newest is None:
        return FIRST_SINCE
    local = newest.replace(tzinfo=UTC).astimezone(ZoneInfo(timezone))
    first, second = (local.replace(fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    text = (local.replace(tzinfo=None) - max(first - second, timedelta())).isoformat(" ")
    return text.rstrip("0") if "." in text else text.removesuffix(":00").removesuffix(" 00:00")


def _fetch_rows(home: Home, dataset: Dataset, source: Source, since: str, target: Path, limit: int = 0) -> None:
    """Write the query's rows, or the first of them, to a Parquet file, by an instance of DuckDB of its own.

    Raises:
        InputError: the query fails, gives no rows, or would read a file of the current folder, where DuckDB looks
            first, and which may be another one every night.
    """
    folder, query = Path(source.file).parent.resolve(), source.query.replace("{since}", f"'{since}'")
    config = warehouse.database_config(home) | {"autoload_known_extensions": True, "file_search_path": str(folder)}

    def write(rows: duckdb.DuckDBPyRelation) -> None:
        (rows.limit(limit) if limit else rows).write_parquet(str(target), compression="zstd")

    with duckdb.connect(config=config) as connection:
        connection.execute(f"set TimeZone = '{dataset.timezone}'")
        if source.url:
            with _query_database(source, query, dataset.timezone) as reader:
                write(connection.from_arrow(reader))
            return
        literals = re.findall(r"""['"]([^'"/][^'"]*)['"]""", query) if Path.cwd() != folder else []
        if here := [text for text in literals if os.path.isfile(text)]:
            raise InputError(
                f"{_name(source)}: {here[0]} is in the current folder, not in {folder}. Write its whole path."
            )
        try:
            # Attached files are not looked for in `file_search_path`.
            rows = connection.sql(re.sub(r"(?i)(?<=\battach ')(?!/|\w+:)", lambda _: f"{folder}/", query))
            if rows is None:
                raise InputError(f"{_name(source)} gives no rows. End it with a select.")
            write(rows)
        except duckdb.Error as error:
            reason = " ".join(str(error).partition("\nLINE ")[0].split()).rstrip(".")
            raise InputError(f"{_name(source)}: {reason}. Correct the query, or what it reads.") from error


@contextlib.contextmanager
def _query_database(source: Source, query: str, timezone: str) -> Generator[pa.RecordBatchReader]:
    """Run a query in the database of the source's URL, through its ADBC driver.

    Raises:
        InputError: the URL is absent, the driver is not installed, or the database cannot be reached or refuses the
            query, also while its rows are read. No message shows a part of the URL's password.
    """
    database = f"[source]: the database that {source.url} names"
    url = read_secret("[source] url", "a URL such as postgresql://USER:PASSWORD@HOST/DATABASE", source.url)
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise InputError(f"{database} has no URL that begins with its kind, such as postgresql:// or sqlite://.")
    name = "postgresql" if scheme == "postgres" else scheme
    try:
        driver: Any = importlib.import_module(f"adbc_driver_{name}.dbapi")
    except ImportError as error:
        package = "-c constraints.txt -e '.[sql]'" if name in ("postgresql", "sqlite") else f"adbc-driver-{name}"
        raise InputError(
            f"{database} needs the driver adbc_driver_{name}, which cannot be imported ({error}). Run "
            f"python -m pip install {package}."
        ) from error
    problem = "cannot be opened ({}). Check the URL that is there, and that the server answers."
    try:
        # SQLite would create an absent file.
        with driver.connect(f"file:{rest}?mode=ro" if name == "sqlite" else url) as connection:
            problem = "refuses the query ({}). Correct `query` of [source] in the data set's file."
            with connection.cursor() as cursor:
                if name == "postgresql":
                    cursor.execute("set transaction read only")
                    cursor.execute(f"set time zone '{timezone}'")
                cursor.execute(query.rstrip("; \n"))
                yield cursor.fetch_record_batch()
    except (driver.Error, duckdb.Error, OSError) as error:
        password = rest.rpartition("@")[0].partition(":")[2]
        secrets = [password, *re.findall(r"(?i)[?&][^=&]*(?:pass|secret|token)[^=&]*=([^&]*)", rest)]
        # As parts of URLs, so that short words are hidden too.
        said = hide_secrets(str(error).partition("\n")[0].replace(url, "***"), [f"://{secret}" for secret in secrets])
        raise InputError(f"{database} {problem.format(said)}") from None  # the driver's message may show a part


def _write_new_rows(home: Home, fetched: Path, new: Path, landed: Sequence[Sequence[Path]]) -> int:
    """Write the fetched rows that no landed file has, in an order that depends on them alone, and count them."""
    with duckdb.connect(config=warehouse.database_config(home)) as connection:
        connection.execute("set TimeZone = 'UTC'")
        rows = connection.read_parquet(escape_path(fetched), hive_partitioning=False)
        columns, before = [_quote(name, '"') for name in rows.columns], rows.limit(0)
        for paths in filter(None, landed):
            files = connection.read_parquet([*map(escape_path, paths)], hive_partitioning=False, union_by_name=True)
            known = {*map(str.casefold, files.columns)}
            cells = [_quote(name, '"') if name.casefold() in known else "null" for name in rows.columns]
            if known == {"mark", "cells"}:
                cells = [f"cells[{_quote(name)}]" for name in rows.columns]
            casts = [f"try_cast({cell} as {kind})" for cell, kind in zip(cells, rows.types, strict=True)]
            before = before.union(files.project(", ".join(casts)))
        rows.create_view("fetched")
        before.create_view("before")
        digest = f"hash({', '.join(columns)})"
        select = f"from fetched except all from before where {digest} in (select {digest} from fetched)"
        connection.sql(select).order("all").write_parquet(str(new), compression="zstd")
    return parquet.read_metadata(new).num_rows


def _name(source: Source) -> str:
    return f"[source] query of {source.file}"


def _quote(name: str, mark: str = "'") -> str:
    return mark + name.replace(mark, 2 * mark) + mark
