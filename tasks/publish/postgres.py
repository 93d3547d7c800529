"""Copy the current publication to PostgreSQL, where a shop's application reads its lists.

One transaction deletes the rows of the tables and copies the new ones. So a reader's statement sees the old publication
or the new, whole, nobody waits, and grants and indexes stay. A table is made anew only if its columns change. The table
`publication` has the run whose lists they are; a run that finds its own there copies nothing, so that a night after one
that could not reach the server puts it right.
"""

import logging
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from oneclass.tasks.errors import InputError
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.secrets import hide_secrets, read_secret
from oneclass.tasks.stores import publications, runs
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.published_model import LISTS_FILE

logger = logging.getLogger(__name__)

# By table, its file and the columns that readers look its rows up by.
TABLES = {
    "recommendations": (publications.RECOMMENDATIONS_FILE, "user_id"),
    "placements": (publications.PLACEMENTS_FILE, "user_id"),
    "exploration": (publications.EXPLORATION_FILE, "user_id"),
    "lists": (LISTS_FILE, "list, window_days, category"),
}
# Without these limits of libpq (seconds, milliseconds) a server that answers nothing holds up the night for minutes.
CONNECTION_LIMITS = {"connect_timeout": 30, "tcp_user_timeout": 60_000}


def copy_to_postgres(home: Home, run_id: str, settings: PublishSettings) -> None:
    """Copy the current publication to the database that `publish.postgres_*` names, unless it has it already.

    A server that refuses or cannot be reached harms nothing here: it is an alarm of the run, and the next run copies.

    Args:
        run_id: the run whose alarm it is.

    Raises:
        InputError: the URL is absent, or the driver is not installed.
    """
    if (alarm := update_database(home, settings)) is not None:
        runs.record_alarm(home, run_id, alarm)


def update_database(home: Home, settings: PublishSettings) -> str | None:
    """Copy the current publication unless it is there, and return why it could not be copied, or None.

    Raises:
        InputError: as `copy_to_postgres`.
    """
    url = read_url(settings)
    driver = _load_driver()
    schema = settings.postgres_schema or re.sub(r"\W", "_", home.dataset.lower())
    facts = publications.load_current(home)
    try:
        with driver.connect(_limit_waiting(url)) as connection, connection.cursor() as cursor:
            copied = _replace_tables(cursor, schema, home.published.resolve(), facts)
            connection.commit()
    except driver.Error as error:
        reason = " ".join(hide_secrets(str(error), [url]).split())
        return f"publish.postgres: the lists could not be copied, and the database has the earlier ones ({reason})"
    logger.info(
        "PostgreSQL, schema %s: %s", schema, f"{copied:,} rows copied" if copied is not None else "nothing is new"
    )
    return None


def check_database(settings: PublishSettings) -> None:
    """Check that the URL is there and the driver installed; the server need not answer yet.

    Raises:
        InputError: as `copy_to_postgres`.
    """
    read_url(settings)
    _load_driver()


def read_url(settings: PublishSettings) -> str:
    """Return the database's URL.

    Raises:
        InputError: it is absent, or not PostgreSQL's.
    """
    places = {"env": settings.postgres_env, "file": settings.postgres_file, "block": settings.postgres_block}
    url = read_secret("publish.postgres", "a URL such as postgresql://USER:PASSWORD@HOST/DATABASE", **places)
    if not url.startswith(("postgresql://", "postgres://")):
        raise InputError("publish.postgres: what is there does not begin with postgresql://. Write the database's URL.")
    return url


def _load_driver() -> Any:
    try:
        from adbc_driver_postgresql import dbapi  # here: an optional package
    except ImportError as error:
        raise InputError(
            f"publish.postgres needs the driver adbc_driver_postgresql, which cannot be imported ({error}). Run "
            "python -m pip install -c constraints.txt -e '.[sql]'."
        ) from error
    return dbapi


def _limit_waiting(url: str) -> str:
    """Return the URL with the limits of waiting that it does not set itself."""
    limits = "&".join(f"{name}={value}" for name, value in CONNECTION_LIMITS.items() if f"{name}=" not in url)
    return f"{url}{'&' if '?' in url else '?'}{limits}" if limits else url


def _replace_tables(cursor: Any, schema: str, folder: Path, facts: dict[str, Any]) -> int | None:
    """Replace the rows of all tables and return their number; None if they are of this publication already."""
    cursor.execute("select 1 from pg_namespace where nspname = $1", (schema,))
    if not cursor.fetchall():  # `if not exists` would ask for the right to create schemas where there is one, too
        cursor.execute(f'create schema "{schema}"')
    cursor.execute(f"select pg_advisory_xact_lock(hashtext('oneclass {schema}'))")
    cursor.execute(
        f'create table if not exists "{schema}".publication '
        "(run_id text not null, copied_at timestamptz not null default now())"
    )
    cursor.execute(f'select run_id from "{schema}".publication')
    if cursor.fetchall() == [(facts["run_id"],)]:
        return None
    rows = sum(_replace_rows(cursor, schema, table, folder / file, key) for table, (file, key) in TABLES.items())
    cursor.execute(f'delete from "{schema}".publication')
    cursor.execute(f'insert into "{schema}".publication (run_id) values ($1)', (facts["run_id"],))
    return rows


def _replace_rows(cursor: Any, schema: str, table: str, file: Path, key: str) -> int:
    """Replace the rows of one table by those of a Parquet file, by none without it; returns their number.

    Args:
        key: the columns of the index that a new table gets.
    """
    cursor.execute(
        "select column_name from information_schema.columns where table_schema = $1 and table_name = $2 "
        "order by ordinal_position",
        (schema, table),
    )
    columns = [name for (name,) in cursor.fetchall()]
    if not file.exists():
        if columns:
            cursor.execute(f'delete from "{schema}"."{table}"')
        return 0
    with parquet.ParquetFile(file) as source:
        names = source.schema_arrow.names
        if columns and columns != names:
            cursor.execute(f'drop table "{schema}"."{table}"')
        elif columns:
            cursor.execute(f'delete from "{schema}"."{table}"')
        reader = pa.RecordBatchReader.from_batches(source.schema_arrow, source.iter_batches())
        mode = "append" if columns == names else "create"
        rows = cursor.adbc_ingest(table, reader, mode=mode, db_schema_name=schema)
    if mode == "create":
        cursor.execute(f'create index on "{schema}"."{table}" ({key})')
    return rows


copy_to_postgres_task = stage_task(copy_to_postgres)
