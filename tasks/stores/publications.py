"""Publications: one folder per run, `publications/<run>/`, read-only once `published` links to it, with the published
model.

The link is switched atomically, so that a reader sees either the old tables or the new. Readers open a copy of the
tables, `published.duckdb` in the folder, so that runs and readers never block each other. The subfolder `model/` has
the fit, the histories and the ids, for recommendations outside a run.
"""

import contextlib
import logging
import os
from collections.abc import Generator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import checksums, durable, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.published_model import MANIFEST_FILE, MODEL_FOLDER

logger = logging.getLogger(__name__)

DATABASE_FILE = "published.duckdb"
RECOMMENDATIONS_FILE = "recommendations.parquet"
PLACEMENTS_FILE = "placements.parquet"  # only if the data set has placements
EXPLORATION_FILE = "exploration.parquet"  # only if there are lists that explore
REUSABLE_FILES = (DATABASE_FILE, RECOMMENDATIONS_FILE, PLACEMENTS_FILE, EXPLORATION_FILE)
ROWS_PER_BATCH = 1 << 17
STORAGE_VERSION = "v1.2.0"  # the earliest DuckDB that reads the published tables


def create_publication(home: Home, run_id: str) -> Path:
    """Create an empty folder for the publication of a run."""
    folder = home.publications / run_id
    checksums.remove_path(folder)
    durable.make_folder(folder)
    return folder


def find_reusable_publication(home: Home, **sources: str | None) -> Path | None:
    """Return the current publication if it was made of the same sources and its files are undamaged, else None.

    Args:
        sources: digests of its lists, logs and titles, stored among its facts; None if unknown.
    """
    facts = load_current(home)
    if any(digest is None or facts.get(name) != digest for name, digest in sources.items()):
        return None
    folder = home.published.resolve()
    try:
        checksums.load_checked_facts(folder, MANIFEST_FILE, lambda name: name in REUSABLE_FILES)
    except checksums.DamagedFile as error:
        logger.warning("%s; it is made anew", error)
        return None
    return folder


def copy_tables(home: Home, folder: Path, tables: Iterable[tuple[str, duckdb.DuckDBPyRelation]]) -> None:
    """Create or replace tables in the folder's database, each with the rows of a relation."""
    config = {**_reader_config(home), "storage_compatibility_version": STORAGE_VERSION}
    with duckdb.connect(os.path.abspath(folder / DATABASE_FILE), config=config) as target:
        for name, rows in tables:
            target.register("incoming", rows.to_arrow_reader(ROWS_PER_BATCH))
            target.execute(f"create or replace table {name} as select * from incoming")
            target.unregister("incoming")


def activate_publication(home: Home, folder: Path, facts: dict[str, Any], keep: int) -> None:
    """Complete a publication, point `published` to it, and delete all others except the latest and the previous one.

    Args:
        facts: plain data on the publication; `fits` among them, the [model, digest] of each fit that readers may load.
        keep: the number of publications to keep, including this one.
    """
    before, others = load_current(home), list_publications(home)
    sequence_number = 1 + max((other.get("place", 0) for other in others), default=0)
    published_at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    checksums.write_manifest(
        folder,
        MANIFEST_FILE,
        {**facts, "published_at": published_at, "place": sequence_number, "before": before.get("run_id")},
    )
    switch_link(home, folder)
    retained = {folder.name, before.get("run_id"), *[other["run_id"] for other in others[: keep - 1]]}
    for other in home.publications.iterdir():
        if other.name not in retained:
            checksums.remove_path(other)


def switch_link(home: Home, folder: Path) -> None:
    """Point `published` to a publication, atomically."""
    link = home.folder / ".published-next"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.relative_to(home.folder), target_is_directory=True)
    if home.published.exists() and not home.published.is_symlink():
        aside = home.published.with_name(f"published.{datetime.now(UTC):%Y%m%dT%H%M%S}.set-aside")
        logger.warning(
            "%s: is not a link, but a folder or file of its own; it is now called %s", home.published, aside.name
        )
        home.published.rename(aside)
    durable.replace_path(link, home.published)


def quote_path(path: Path) -> str:
    """Escape a path for a single-quoted SQL string."""
    return str(path.absolute()).replace("'", "''")


def load_current(home: Home) -> dict[str, Any]:
    """Load the facts of the publication that `published` points to; empty if there is none or it is damaged."""
    if not home.published.is_symlink():
        return {}
    return checksums.find_facts(home.published.resolve(), MANIFEST_FILE)


def find_age(home: Home) -> timedelta | None:
    """Return the age of the current publication; None without one."""
    published_at = load_current(home).get("published_at")
    return datetime.now(UTC) - datetime.fromisoformat(published_at) if published_at else None


def list_publications(home: Home) -> list[dict[str, Any]]:
    """List the facts of every publication in the home, the newest first."""
    found = filter(None, (checksums.find_facts(folder, MANIFEST_FILE) for folder in home.publications.glob("*")))
    return sorted(found, key=lambda facts: (facts.get("place", 0), facts["run_id"]), reverse=True)


def list_unfinished(home: Home) -> list[Path]:
    """List the folders of publications that a killed or failed run did not complete."""
    shown = home.published.resolve()
    return [one for one in home.publications.glob("*") if not (one / MANIFEST_FILE).exists() and one.resolve() != shown]


def list_used_fits(home: Home) -> set[tuple[str, str]]:
    """Return (model, digest) of the fits that explanations of the home's publications load."""
    return {(model, digest) for facts in list_publications(home) for model, digest in facts["fits"]}


@contextlib.contextmanager
def open_published_tables(home: Home) -> Generator[duckdb.DuckDBPyConnection]:
    """Open the tables of the current publication for reading; later publications do not change them.

    Raises:
        InputError: nothing is published, or an earlier version of this program published it.
        DamagedFile: a file differs from what was published; those of the model are verified when they are loaded.
    """
    folder = home.published.resolve()
    first = f"`python -m flows.backfill --dataset {home.dataset}` with the same --home"
    if not folder.is_dir():
        raise InputError(f"{home.published}: nothing is published yet. Run {first} first.")
    if not (folder / DATABASE_FILE).exists() and not (folder / MANIFEST_FILE).exists():
        raise InputError(f"{home.published}: was published by an earlier version of this program. Run {first} again.")
    try:
        checksums.load_checked_facts(folder, MANIFEST_FILE, lambda name: not name.startswith(f"{MODEL_FOLDER}/"))
    except checksums.DamagedFile as error:
        raise checksums.DamagedFile(f"{error}. What is published is not trusted; run {first} again.") from error
    with duckdb.connect(str(folder / DATABASE_FILE), read_only=True, config=_reader_config(home)) as connection:
        yield connection


def _reader_config(home: Home) -> dict[str, Any]:
    """Return DuckDB's settings with the home's limits and no temporary folder beside the database."""
    return {**warehouse.database_config(home), "temp_directory": ""}
