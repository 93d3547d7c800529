"""What runs publish: a folder each, `publications/<run>/`, which nobody writes to once `published` is a link to it.

The link is swung in one step: a reader sees the old tables or the new. `published.duckdb` in the folder is for
readers: a database of copies, so that no reader is ever in the way of a run, nor a run in a reader's.
"""

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from tasks.errors import InputError
from tasks.stores import database, manifest
from tasks.stores.home import Home
from tasks.stores.published_model import FOLDER, RECORD

logger = logging.getLogger(__name__)

DATABASE = "published.duckdb"
RECOMMENDATIONS = "recommendations.parquet"
ROWS_AT_A_TIME = 1 << 17


def begin(home: Home, run_id: str) -> Path:
    """An empty folder for what a run publishes."""
    folder = home.publications / run_id
    manifest.remove(folder)
    folder.mkdir(parents=True)
    return folder


def made_from(home: Home, lists: str | None, logs: str | None) -> Path | None:
    """The publication that stands, where its lists and the logs behind them are these, and their files whole.

    Args:
        lists, logs: digests, kept among its facts; None where they are not known.
    """
    facts = standing(home)
    if None in (lists, logs) or (facts.get("lists"), facts.get("logs")) != (lists, logs):
        return None
    folder = home.published.resolve()
    try:
        manifest.checked(folder, RECORD, lambda name: name in (DATABASE, RECOMMENDATIONS))
    except manifest.Damaged as error:
        logger.warning("%s; it is made anew", error)
        return None
    return folder


def copy_tables(home: Home, folder: Path, tables: Iterable[tuple[str, duckdb.DuckDBPyRelation]]) -> None:
    """Put tables into the folder's database by their names, each of the rows that a relation has; it may be there already."""
    with duckdb.connect(os.path.abspath(folder / DATABASE), config=_config(home)) as target:
        for name, rows in tables:
            target.register("incoming", rows.to_arrow_reader(ROWS_AT_A_TIME))
            target.execute(f"create or replace table {name} as select * from incoming")
            target.unregister("incoming")


def swing(home: Home, folder: Path, facts: dict[str, Any], keep: int) -> None:
    """Close a folder, point `published` to it, and drop all others but the latest and the one that stood before.

    Args:
        facts: plain data on the publication; `fits` among them, the [model, digest] of each that readers may ask.
        keep: how many publications stay, this one among them.
    """
    before, others = standing(home), kept(home)
    place = 1 + max((other.get("place", 0) for other in others), default=0)
    at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    manifest.seal(folder, RECORD, {**facts, "published_at": at, "place": place, "before": before.get("run_id")})
    point(home, folder)
    staying = {folder.name, before.get("run_id"), *[other["run_id"] for other in others[: keep - 1]]}
    for other in home.publications.iterdir():
        if other.name not in staying:
            manifest.remove(other)


def point(home: Home, folder: Path) -> None:
    """Point `published` to a publication, in one step."""
    link = home.folder / ".published-next"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.relative_to(home.folder), target_is_directory=True)
    if home.published.exists() and not home.published.is_symlink():
        aside = home.published.with_name(f"published.{datetime.now(UTC):%Y%m%dT%H%M%S}.set-aside")
        logger.warning(
            "%s: is not a link, but a folder or file of its own; it is now called %s", home.published, aside.name
        )
        home.published.rename(aside)
    os.replace(link, home.published)


def quoted(path: Path) -> str:
    """A path as it stands between single quotes in SQL."""
    return str(path.absolute()).replace("'", "''")


def standing(home: Home) -> dict[str, Any]:
    """The facts of the publication that `published` points to; empty where none does, or its record is damaged."""
    if not home.published.is_symlink():
        return {}
    return manifest.facts_if_any(home.published.resolve(), RECORD)


def kept(home: Home) -> list[dict[str, Any]]:
    """The facts of every publication that is kept, the newest first."""
    found = filter(None, (manifest.facts_if_any(folder, RECORD) for folder in home.publications.glob("*")))
    return sorted(found, key=lambda facts: (facts.get("place", 0), facts["run_id"]), reverse=True)


def unfinished(home: Home) -> list[Path]:
    """Folders that were never closed, for the run that made them was killed or failed."""
    shown = home.published.resolve()
    return [one for one in home.publications.glob("*") if not (one / RECORD).exists() and one.resolve() != shown]


def fits_in_use(home: Home) -> set[tuple[str, str]]:
    """(model, digest) of the fits that the publications in the home ask for an explanation."""
    return {(model, digest) for facts in kept(home) for model, digest in facts["fits"]}


@contextlib.contextmanager
def opened(home: Home) -> Iterator[duckdb.DuckDBPyConnection]:
    """The tables of what is published now, to read; a run that publishes meanwhile changes nothing of them.

    Raises:
        InputError: nothing is published, or by an earlier version of this program.
        Damaged: one of the files is not what was published; those of the model are looked at by who reads them.
    """
    folder = home.published.resolve()
    first = f"`python -m flows.backfill --dataset {home.dataset}` with the same --home"
    if not folder.is_dir():
        raise InputError(f"{home.published}: nothing is published yet. Run {first} first.")
    if not (folder / DATABASE).exists() and not (folder / RECORD).exists():
        raise InputError(f"{home.published}: was published by an earlier version of this program. Run {first} again.")
    try:
        manifest.checked(folder, RECORD, lambda name: not name.startswith(f"{FOLDER}/"))
    except manifest.Damaged as error:
        raise manifest.Damaged(f"{error}. What is published is not trusted; run {first} again.") from error
    with duckdb.connect(str(folder / DATABASE), read_only=True, config=_config(home)) as connection:
        yield connection


def _config(home: Home) -> dict[str, Any]:
    """The home's limits, and no file of DuckDB's own beside the database."""
    return {**database.limits(home), "temp_directory": ""}
