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
from collections.abc import Collection, Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
from pyarrow import parquet

from oneclass import sql
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.sections import LANDED, Source
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.landing import FileRefused, list_landing_files
from oneclass.tasks.ingest.sources import scan_logs
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
    called = f"[source] query of {source.file}"
    landed = {path: match[1] for path in home.landing.rglob("source*") if (match := LANDED.fullmatch(path.name))}
    newest, number = None, max((int(number or 0) for number in landed.values()), default=0)
    if home.warehouse.exists() and not replace:
        with warehouse.open_warehouse(home) as connection:  # for writing, to migrate an older warehouse
            newest, read = warehouse.fetch_row(connection, sql.statement("ingest/newest"))
            number = max(number, read)
    if not source.is_incremental and number:
        raise InputError(
            f"{called} has no {{since}}, so that rows which earlier nights landed would count twice. Write "
            f"{{since}} in it, or delete all source-*.parquet below {home.landing} and run with --replace."
        )
    before = {*landed} & {*list_landing_files(home.landing)} if replace else {*landed}
    target = home.landing / (f"source-{number + 1:06}.parquet" if source.is_incremental else "source.parquet")
    fetched, new = (home.landing / f".source-partial-{part}.parquet" for part in ("fetched", "new"))
    try:
        fetch_rows(home, dataset, source, fetched, _format_since(newest, dataset.timezone))
        rows = _write_new_rows(home, fetched, new, before if source.is_incremental else ())
        if not rows or (target.exists() and filecmp.cmp(new, target, shallow=False)):
            logger.info("[source]: the query has no new rows")
            return
        scan_logs([new], dataset)
        durable.install_file(new, target)
        logger.info("[source]: landed %s rows as %s", f"{rows:,}", target)
    except FileRefused as error:
        said = str(error).replace(f"--source {new}", f"--dataset {dataset.name}").replace(str(new), called)
        raise InputError(said) from error
    finally:
        for leftover in home.landing.glob(".source-partial-*"):
            leftover.unlink()


def _format_since(newest: datetime | None, timezone: str) -> str:
    """Format a time in a time zone as its shortest text, which sorts before its other forms where times are texts."""
    if newest is None:
        return FIRST_SINCE
    local = newest.replace(tzinfo=UTC).astimezone(ZoneInfo(timezone))
    if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
        local -= timedelta(hours=1)  # as clocks go back, it comes twice, and both may be meant
    text = local.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if "." in text else text.removesuffix(":00").removesuffix(" 00:00")


def fetch_rows(
    home: Home, dataset: Dataset, source: Source, target: Path, since: str = FIRST_SINCE, limit: int | None = None
) -> None:
    """Write the query's rows, or the first of them, to a Parquet file, by an instance of DuckDB of its own.

    Raises:
        InputError: the query fails, gives no rows, or would read the current folder, where DuckDB looks first.
    """
    called, folder = f"[source] query of {source.file}", Path(source.file).parent.resolve()
    query = source.query.replace("{since}", f"'{since}'")
    config = warehouse.database_config(home) | {"autoload_known_extensions": True, "file_search_path": str(folder)}

    def write(rows: duckdb.DuckDBPyRelation) -> None:
        (rows.limit(limit) if limit else rows).write_parquet(str(target), compression="zstd")

    with duckdb.connect(config=config) as connection:
        connection.execute(f"set TimeZone = '{dataset.timezone}'")
        if source.url:
            with _query_database(source, query, dataset.timezone) as reader:
                write(connection.from_arrow(reader))
            return
        here = [text for text in re.findall(r"""['"]([^'"/][^'"]*)['"]""", query) if os.path.isfile(text)]
        if here and Path.cwd() != folder:
            raise InputError(f"{called}: {here[0]} is in the current folder too. Write its whole path.")
        try:
            # Attached files are not looked for in `file_search_path`.
            rows = connection.sql(re.sub(r"(?i)(?<=\battach ')(?!/|\w+:)", lambda _: f"{folder}/", query))
            if rows is None:  # pyright: ignore[reportUnnecessaryComparison] (of a statement without a result)
                raise InputError(f"{called} gives no rows. End it with a select.")
            write(rows)
        except duckdb.Error as error:
            reason = " ".join(str(error).partition("\nLINE ")[0].split()).rstrip(".")
            raise InputError(f"{called}: {reason}. Correct the query, or what it reads.") from error


@contextlib.contextmanager
def _query_database(source: Source, query: str, timezone: str) -> Generator[pa.RecordBatchReader]:
    """Run a query in the database of the source's URL, through its ADBC driver. No message shows its password."""
    database = f"[source]: the database that {source.url} names"
    url = read_secret("[source] url", "a URL such as postgresql://USER:PASSWORD@HOST/DATABASE", source.url)
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise InputError(f"{database} has no URL that begins with its kind, such as postgresql:// or sqlite://.")
    name = "postgresql" if scheme == "postgres" else scheme
    try:
        driver: Any = importlib.import_module(f"adbc_driver_{name}.dbapi")
    except ImportError as error:
        advice = f"Run python -m pip install -c constraints.txt adbc-driver-{name}."
        raise InputError(f"{database} needs adbc_driver_{name}, which cannot be loaded ({error}). {advice}") from error
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
        said = hide_secrets(str(error).partition("\n")[0].replace(url, "***"), secrets)
        raise InputError(f"{database} {problem.format(said)}") from None  # the driver's message may show a part


def _write_new_rows(home: Home, fetched: Path, new: Path, before: Collection[Path]) -> int:
    """Write the fetched rows that no landed file has, in an order that depends on them alone, and count them."""
    with duckdb.connect(config=warehouse.database_config(home)) as connection:
        connection.execute("set TimeZone = 'UTC'")
        rows = connection.read_parquet(escape_path(fetched), hive_partitioning=False)
        rows.create_view("fetched")
        files = [escape_path(path) for path in before or (fetched,)]
        landed = connection.read_parquet(files, hive_partitioning=False, union_by_name=True)
        (landed if before else rows.limit(0)).create_view("landed")
        names = ('"{}"'.format(name.replace('"', '""')) for name in rows.columns)
        cells = ", ".join(f"try_cast({name} as {kind})" for name, kind in zip(names, rows.types, strict=True))
        connection.sql(sql.statement("ingest/new_rows", cells=cells)).write_parquet(str(new), compression="zstd")
    return parquet.read_metadata(new).num_rows
