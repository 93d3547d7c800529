"""Read the rows of a SQL query from a database through its ADBC driver.

The database's URL comes from the environment, a file or a Prefect block, and no message shows it or a part of its
password.
"""

import contextlib
import importlib
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import compute, parquet

from oneclass.tasks.datasets.source import Source
from oneclass.tasks.errors import InputError
from oneclass.tasks.secrets import read_secret

INSTALL_SQL = "python -m pip install -c constraints.txt -e '.[sql]'"
DRIVERS = {"postgres": "postgresql"}
PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")

Cursor: TypeAlias = Any  # of adbc_driver_manager, an optional package


@contextlib.contextmanager
def open_cursor(source: Source) -> Generator[Cursor]:
    """Connect to the database of a source. Errors of the database in the body are explained too.

    Raises:
        InputError: the URL is absent, the driver is not installed, or the database cannot be reached or refuses.
    """
    url = _read_url(source)
    driver = _load_driver(source, url)
    try:
        connection = driver.connect(_driver_uri(url))
    except driver.Error as error:
        raise InputError(
            f"{_describe_database(source)} cannot be opened ({_hide_secrets(error, url)}). Check the URL that is there,"
            " and that the server answers."
        ) from None  # the driver's own message may show a part of the password
    try:
        with connection, connection.cursor() as cursor:
            yield cursor
    except (driver.Error, OSError) as error:
        if getattr(error, "errno", None):  # of this machine's disk; those that end a result's stream have none
            raise
        raise InputError(
            f"{_describe_database(source)} refuses the query ({_hide_secrets(error, url)}). Correct `query` or "
            "`high_water_mark` of [source] in the data set's file."
        ) from None


def fetch_rows(cursor: Cursor, source: Source, target: Path, *, at_least: str = "", limit: int | None = None) -> int:
    """Write the query's rows to a Parquet file, batch by batch, and return their number.

    Args:
        at_least: the least mark of the rows, as a SQL literal; by default all that have one.
        limit: stop after this many rows.

    Raises:
        InputError: Parquet cannot hold a column, or two have one name.
    """
    condition = f">= {at_least}" if at_least else "is not null"
    cursor.execute(f"{_subquery(source)} where {quote_column(source.high_water_mark)} {condition}")
    reader, rows = cursor.fetch_record_batch(), 0
    schema = pa.schema([_storage_field(field, source) for field in reader.schema])
    if twice := sorted({name for name in schema.names if schema.names.count(name) > 1}):
        raise InputError(f"[source] query: gives two columns called {twice[0]}. Rename one with `as`.")
    try:
        with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
            for batch in reader:
                arrays = [_to_storage(*pair) for pair in zip(batch.columns, schema, strict=True)]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
                rows += len(batch)
                if limit is not None and rows >= limit:
                    break
    except pa.ArrowNotImplementedError as error:
        raise InputError(
            f"[source] query: Parquet cannot hold one of its columns ({error}). Cast it in the query, or leave it out."
        ) from error
    return rows


def count_unmarked(cursor: Cursor, source: Source) -> int:
    """Count the rows of the query that have no mark."""
    columns = _subquery(source).replace("select *", "select count(*)", 1)
    cursor.execute(f"{columns} where {quote_column(source.high_water_mark)} is null")
    return cursor.fetchone()[0]


def quote_column(name: str) -> str:
    """Return a column of the query as SQL that most databases take; plain names need no quotes there."""
    return "source." + (name if PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"')


def _subquery(source: Source) -> str:
    return f"select * from (\n{source.query.strip().rstrip(';')}\n) as source"


def _read_url(source: Source) -> str:
    url = read_secret("[source] url", "a URL such as postgresql://USER:PASSWORD@HOST/DATABASE", source.url)
    if "://" not in url:
        raise InputError(
            f"{_describe_database(source)} has no URL that begins with its kind, such as "
            "postgresql://USER:PASSWORD@HOST/DATABASE or sqlite:///FILE."
        )
    return url


def _describe_database(source: Source) -> str:
    """Name the database by where its URL is, since the URL may hold a password."""
    return f"[source]: the database that {source.url} names"


def _load_driver(source: Source, url: str) -> Any:
    scheme = url.partition("://")[0]
    name = source.driver or DRIVERS.get(scheme, scheme)
    try:
        return importlib.import_module(f"adbc_driver_{name}.dbapi")
    except ImportError as error:
        advice = INSTALL_SQL if name in ("postgresql", "sqlite") else f"python -m pip install adbc-driver-{name}"
        raise InputError(
            f"{_describe_database(source)} needs the driver adbc_driver_{name}, which cannot be imported ({error}). Run"
            f" {advice}, or name another `driver` in [source]."
        ) from error


def _driver_uri(url: str) -> str:
    """Return the URL as the driver takes it: SQLite's opens an existing file for reading."""
    scheme, _, rest = url.partition("://")
    return f"file:{rest}?mode=ro" if scheme == "sqlite" else url


def _hide_secrets(error: Exception, url: str) -> str:
    """Return the first line of a driver's message without the URL's password, or a part of it that was misread."""
    credentials = url.partition("://")[2].rpartition("@")[0]
    password = credentials.partition(":")[2]
    values = re.findall(r"[?&][^=&]*(?:pass|secret|token)[^=&]*=([^&]*)", url, flags=re.IGNORECASE)
    secrets = [one for text in (password, *values) for one in (text, unquote(text), *re.split(r"\W+", unquote(text)))]
    message = str(error).partition("\n")[0].replace(url, "***")
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        message = message.replace(secret, "***")
    return message


def _storage_field(field: pa.Field, source: Source) -> pa.Field:
    """Return how a column is stored: PostgreSQL's numeric is text, which is exact; as the mark it must be a number."""
    if not isinstance(field.type, pa.OpaqueType):
        return field
    is_mark = field.name.casefold() == source.high_water_mark.casefold() and field.type.type_name == "numeric"
    return pa.field(field.name, pa.float64() if is_mark else field.type.storage_type)


def _to_storage(column: pa.Array, field: pa.Field) -> pa.Array:
    if isinstance(column, pa.ExtensionArray) and isinstance(column.type, pa.OpaqueType):
        return compute.cast(column.storage, field.type)
    return column
