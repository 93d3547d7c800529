"""Publications: one folder per run, `publications/<run>/`, with all that belongs to it; `published` links to one.

The folder has the lists and the evaluation as files, the same tables for readers (`published.duckdb`), the model with
ids, titles, attributes and rules (`tasks/stores/published_model.py`), and a manifest with their digests, the
configuration behind the lists and what it was judged by. It never changes. A reader sees the old folder or the new.

What is current is decided in the warehouse: one transaction fills the tables of the schema `published` from the folder
and marks its row in `operations.publications`, which has the manifest too. The manifest's file and the link follow, and
every command that works on the data set completes them first (`repair_publications`). Nothing of a folder is checked
anew but its digests: whatever the logs hold today, its lists are those that were published. `operations.promotions` has
the decisions to publish.
"""

import contextlib
import logging
import os
from collections.abc import Collection, Generator, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import checksums, durable, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.published_model import MANIFEST_FILE, MODEL_FOLDER, check_published

logger = logging.getLogger(__name__)

DATABASE_FILE = "published.duckdb"
RECOMMENDATIONS_FILE = "recommendations.parquet"
LIST_TABLES = ("recommendations", "placements", "exploration", "lists")
"""In the database, and in the schema `published`."""
ROWS_PER_BATCH = 1 << 17
STORAGE_VERSION = "v1.2.0"  # the earliest DuckDB that reads the published tables
BY_HAND = "by hand: "  # with which the reason of what a person decided begins


def create_publication(home: Home, run_id: str) -> Path:
    """Create an empty folder for the publication of a run."""
    folder = home.publications / run_id
    checksums.remove_path(folder)
    durable.make_folder(folder)
    return folder


def write_tables(home: Home, folder: Path, tables: Iterable[tuple[str, duckdb.DuckDBPyRelation]]) -> None:
    """Create the folder's database, with the rows of each relation as a table."""
    config = {**_reader_config(home), "storage_compatibility_version": STORAGE_VERSION}
    with duckdb.connect(os.path.abspath(folder / DATABASE_FILE), config=config) as target:
        for name, rows in tables:
            target.register("incoming", rows.to_arrow_reader(ROWS_PER_BATCH))
            target.execute(f"create table {name} as select * from incoming")
            target.unregister("incoming")


def record_new(connection: duckdb.DuckDBPyConnection, home: Home, folder: Path, facts: dict[str, Any]) -> None:
    """Record a new publication as the current one, in the transaction that fills the tables of its lists.

    Args:
        folder: complete, and on the disk when this returns.
        facts: plain data on the publication; `fits` among them, the [model, digest] of each fit that readers may load.
    """
    sequence_number = 1 + max((other.get("place", 0) for other in list_publications(home)), default=0)
    published_at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    before = load_recorded_facts(connection).get("run_id")
    facts = {**facts, "run_id": folder.name, "published_at": published_at, "place": sequence_number, "before": before}
    _mark_current(connection, folder.name, checksums.format_manifest(folder, MANIFEST_FILE, facts))


def record_earlier(connection: duckdb.DuckDBPyConnection, home: Home, run_id: str) -> None:
    """Record a publication of the home as the current one and fill the tables of its lists, in one transaction.

    Raises:
        DamagedFile: a file of it differs from what was published.
    """
    folder = home.publications / run_id
    checksums.load_checked_facts(folder, MANIFEST_FILE)
    with _open_tables(home, folder) as source:
        present = {table for (table,) in source.execute("select table_name from duckdb_tables()").fetchall()}
        for table in LIST_TABLES:
            connection.execute(f"delete from published.{table}")
            if table in present:
                connection.register("incoming", source.sql(f"from {table}").to_arrow_reader(ROWS_PER_BATCH))
                connection.execute(f"insert into published.{table} by name from incoming")
                connection.unregister("incoming")
    _mark_current(connection, run_id, (folder / MANIFEST_FILE).read_text(encoding="utf-8"))


def show_current(connection: duckdb.DuckDBPyConnection, home: Home) -> None:
    """Point `published` to the publication that the warehouse records as current, after the commit."""
    row = connection.execute("select run_id, manifest from operations.publications where is_current").fetchone()
    assert row is not None
    _write_manifest(home, *row)
    switch_link(home, home.publications / row[0])


def remove_others(connection: duckdb.DuckDBPyConnection, home: Home, retained: Collection[str]) -> None:
    """Delete all publications of the home but those of some runs, and what the warehouse records of the others."""
    connection.execute("delete from operations.publications where run_id not in (select unnest(?))", [list(retained)])
    for folder in home.publications.glob("*"):
        if folder.name not in retained:
            checksums.remove_path(folder)


def load_recorded_facts(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Load the facts of the publication recorded as current; empty if none is."""
    row = connection.execute("select manifest from operations.publications where is_current").fetchone()
    return checksums.parse_record(row[0], "operations.publications")[0] if row else {}


def repair_publications(connection: duckdb.DuckDBPyConnection, home: Home) -> list[str]:
    """Complete what a killed command left, and put right what is damaged; return a sentence for each damage.

    A manifest is restored from the warehouse. The link is set to what the warehouse records as current, or without a
    record the other way round. If a file of that is damaged, the latest undamaged publication is published again. If
    there is none, all stays as it is: readers refuse it, and the gates go on by the warehouse.
    """
    if home.published.exists() and not home.published.is_symlink():
        return []  # of an earlier version of this program; the next publication sets it aside
    alarms = _restore_manifests(connection, home)
    recorded = load_recorded_facts(connection).get("run_id")
    linked = home.published.resolve().name if home.published.is_symlink() else None
    current = recorded or linked
    damage = current and _find_damage(home.publications / current)
    if not damage and recorded == linked:
        return alarms
    others = [facts["run_id"] for facts in list_publications(home) if facts["run_id"] != current]
    sound = (run_id for run_id in [current, *others] if run_id and not _find_damage(home.publications / run_id))
    if (run_id := next(sound, None)) is None:
        return [*alarms, f"{damage}. No other publication is undamaged, so nothing is served until a run is promoted"]
    connection.begin()
    record_earlier(connection, home, run_id)
    connection.commit()
    show_current(connection, home)
    if damage:
        return [*alarms, f"{damage}. The publication of run {run_id} is published again instead"]
    found = f"pointed to run {linked}" if linked else "was missing"
    return [
        *alarms,
        *([f"{home.published}: {found}; it points to run {run_id}, which was published last"] if recorded else []),
    ]


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
    files = [home.published / name for name in (DATABASE_FILE, MANIFEST_FILE)]
    if home.published.is_dir() and not any(file.exists() for file in files):
        raise InputError(
            f"{home.published}: was published by an earlier version of this program. Run `python -m flows.backfill "
            f"--dataset {home.dataset}` with the same --home again."
        )
    folder, _ = check_published(home, lambda name: not name.startswith(f"{MODEL_FOLDER}/"))
    with _open_tables(home, folder) as connection:
        yield connection


def _open_tables(home: Home, folder: Path) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(os.path.abspath(folder / DATABASE_FILE), read_only=True, config=_reader_config(home))


def _reader_config(home: Home) -> dict[str, Any]:
    """Return DuckDB's settings with the home's limits and no temporary folder beside the database."""
    return {**warehouse.database_config(home), "temp_directory": ""}


def _mark_current(connection: duckdb.DuckDBPyConnection, run_id: str, manifest: str) -> None:
    connection.execute("delete from operations.publications where run_id = ?", [run_id])
    connection.execute("update operations.publications set is_current = false")
    connection.execute("insert into operations.publications values (?, ?, true)", [run_id, manifest])


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


def _restore_manifests(connection: duckdb.DuckDBPyConnection, home: Home) -> list[str]:
    """Write the manifests that differ from what the warehouse records; return a sentence for each damaged one."""
    alarms, shown = [], home.published.resolve().name
    for run_id, manifest, is_current in connection.execute("from operations.publications").fetchall():
        path = home.publications / run_id / MANIFEST_FILE
        was_killed = is_current and run_id != shown and not path.exists()
        if path.parent.is_dir() and _write_manifest(home, run_id, manifest) and not was_killed:
            alarms.append(f"{path}: was damaged or missing; it is restored from the warehouse")
    return alarms


def _write_manifest(home: Home, run_id: str, manifest: str) -> bool:
    """Write the manifest of a publication, and return whether that changed the file."""
    path = home.publications / run_id / MANIFEST_FILE
    with contextlib.suppress(OSError):
        if path.read_bytes() == manifest.encode():
            return False
    if path.is_dir():
        checksums.remove_path(path)
    durable.write_text(home.folder / ".published-next", path, manifest)
    return True


def _find_damage(publication: Path) -> str | None:
    try:
        checksums.load_checked_facts(publication, MANIFEST_FILE)
    except checksums.DamagedFile as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Decision:
    """A row of `operations.promotions`."""

    run_id: str
    decided_at: datetime
    champion: str | None
    challenger: str
    metric: str | None
    difference: float | None
    standard_error: float | None
    margin: float
    promoted: bool
    reason: str

    @property
    def is_refit(self) -> bool:
        """Whether the published model, fitted to newer edges, took its own place."""
        return self.promoted and self.champion == self.challenger and not self.reason.startswith(BY_HAND)

    @property
    def sentence(self) -> str:
        """The decision as a sentence."""
        if self.promoted and self.reason.startswith(BY_HAND):
            return f"{self.challenger} was published {self.reason}"
        if self.promoted:
            return f"{self.challenger} was {'refitted' if self.is_refit else 'promoted'}: {self.reason}"
        return f"not promoted: {self.challenger}. {self.champion} stays as it was published: {self.reason}"


def record_decision(connection: duckdb.DuckDBPyConnection, decision: Decision) -> None:
    """Write a decision, replacing that of an earlier try of the same run."""
    connection.execute("delete from operations.promotions where run_id = ?", [decision.run_id])
    warehouse.insert(connection, "operations.promotions", pl.DataFrame([asdict(decision)], infer_schema_length=None))


def load_decisions(connection: duckdb.DuckDBPyConnection, run_id: str | None = None, limit: int = 1) -> list[Decision]:
    """Load the last decisions, newest first, of all runs or of one."""
    rows = warehouse.select(connection, "promotion/decisions", run_id=run_id, rows=limit)
    return [Decision(**row) for row in rows.iter_rows(named=True)]
