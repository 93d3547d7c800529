"""What runs publish: a folder each, `publications/<run>/`, which nobody writes to once `published` is a link to it.

The link is swung in one step: a reader sees the old tables or the new. `published.duckdb` in the folder is for
readers: a database of copies, so that no reader is ever in the way of a run, nor a run in a reader's.
"""

import contextlib
import functools
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.numerics.sequential_histories import with_recency_ranks
from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import checksums, warehouse
from oneclass.tasks.stores.home import Home

MANIFEST_FILE = "manifest.json"  # of the publication
MODEL_FOLDER = "model"
MATRIX_FILES = ("train_indptr.npy", "train_indices.npy", "train_counts.npy")
RECENCY_RANKS_FILE = "train_places.npy"  # where the split keeps the order of likes


@dataclass(frozen=True)
class PublishedModel:
    """What lies in the folder.

    Attributes:
        publication: the facts in the publication's record; `run_id` among them.
        model, score, digest: of the fit.
        fit: its folder.
        items: item_id, title, users; a row a column of the fit.
        users: user_id; a row a row of `histories`.
        histories: (users, items), memory-mapped; a value is the number of events behind the edge. `SequentialHistories` where
            the run kept the order of likes.
    """

    publication: dict[str, Any]
    model: str
    score: str
    digest: str
    fit: Path
    items: pl.DataFrame
    users: pl.DataFrame
    histories: csr_matrix


def write_published_model(
    publication: Path,
    *,
    recommends: dict[str, str],
    fit: Path,
    matrices: Path,
    items: pl.DataFrame,
    users: pl.DataFrame,
) -> None:
    """Fill the folder of a publication that is not closed yet.

    Args:
        recommends: `model`, `score` and `digest`.
        fit, matrices: folders in the stores; of the first all files but its record are taken.
        items, users: as in `PublishedModel`.
    """
    folder = publication / MODEL_FOLDER
    (folder / "fit").mkdir(parents=True)
    (folder / "histories").mkdir()
    for file in sorted(fit.iterdir()):
        if file.name != "fit.json":  # it says how long the fit took, which differs between equal runs
            _link_or_copy(file, folder / "fit" / file.name)
    for name in (*MATRIX_FILES, RECENCY_RANKS_FILE):
        if name in MATRIX_FILES or (matrices / name).exists():
            _link_or_copy(matrices / name, folder / "histories" / name)
    items.write_parquet(folder / "items.parquet")
    users.write_parquet(folder / "users.parquet")
    (folder / "recommends.json").write_text(json.dumps(recommends, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def copy_published_model(before: Path, publication: Path) -> None:
    """Take the model of another publication over, where it has one: the recommendations stay those that stood."""
    for file in sorted((before / MODEL_FOLDER).rglob("*")):
        if file.is_file():
            target = publication / file.relative_to(before)
            target.parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(file, target)


def has_published_model(home: Home) -> bool:
    """Whether what is published recommends anything that can be asked."""
    return (home.published / MODEL_FOLDER).is_dir()


def load_titles(home: Home, items: set[str]) -> dict[str, str]:
    """Titles of some items, by their ids, as they are published; empty where nothing is, or it cannot be read."""
    try:
        found = pl.read_parquet(home.published / MODEL_FOLDER / "items.parquet", columns=["item_id", "title"])
    except (OSError, pl.exceptions.PolarsError):
        return {}
    wanted = found.filter(pl.col("item_id").is_in(list(items)) & pl.col("title").is_not_null())
    return dict(wanted.iter_rows())


def load_published_model(home: Home) -> PublishedModel:
    """The model of what is published now; a run that publishes meanwhile changes nothing of it.

    Raises:
        InputError: nothing is published, or no recommendations, or by an earlier version of this program.
        Damaged: one of the files is not what was published.
    """
    while True:
        folder = home.published.resolve()
        try:
            return _read_published_model(home, folder)
        except (OSError, checksums.DamagedFile):
            if home.published.resolve() == folder:  # else it was dropped for a newer one while it was read
                raise


def _read_published_model(home: Home, publication: Path) -> PublishedModel:
    run = f"`python -m flows.backfill --dataset {home.dataset}` with the same --home"
    if not publication.is_dir():
        raise InputError(f"{home.published}: nothing is published yet. Run {run} first.")
    folder = publication / MODEL_FOLDER
    if not folder.is_dir():
        raise InputError(
            f"{home.published}: holds no model to ask. Either an earlier version of this program published it, and "
            f"{run} publishes one that does; or it is of a run of the protocol `given` alone, which publishes its "
            "evaluation and recommends nothing: run another protocol too."
        )
    try:
        facts = checksums.load_checked_facts(
            publication, MANIFEST_FILE, lambda name: name.startswith(f"{MODEL_FOLDER}/")
        )
    except checksums.DamagedFile as error:
        raise checksums.DamagedFile(f"{error}. What is published is not trusted; run {run} again.") from error
    items, users = (pl.read_parquet(folder / f"{name}.parquet") for name in ("items", "users"))
    # As plain arrays: each look into a `memmap` costs microseconds.
    indptr, indices, counts = (np.asarray(np.load(folder / "histories" / name, mmap_mode="r")) for name in MATRIX_FILES)
    file = folder / "histories" / RECENCY_RANKS_FILE
    places = np.asarray(np.load(file, mmap_mode="r")) if file.exists() else None
    histories = csr_view(counts, indices, indptr, len(items), places)
    recommends = json.loads((folder / "recommends.json").read_text(encoding="utf-8"))
    return PublishedModel(facts, **recommends, fit=folder / "fit", items=items, users=users, histories=histories)


@functools.lru_cache(maxsize=4)
def _csr_template(rows: int, width: int) -> dict[str, Any]:
    """What a matrix has, to be copied: scipy takes several times as long to make one."""
    matrix = csr_matrix((rows, width), dtype=np.float32)
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return vars(matrix)


def csr_view(
    counts: np.ndarray, columns: np.ndarray, indptr: np.ndarray, width: int, recency_ranks: np.ndarray | None = None
) -> csr_matrix:
    """A CSR view over arrays of sorted columns, neither copied nor checked; with places, `SequentialHistories`."""
    matrix = object.__new__(csr_matrix)
    vars(matrix).update(_csr_template(len(indptr) - 1, width), data=counts, indices=columns, indptr=indptr)
    return with_recency_ranks(matrix, recency_ranks)


def _link_or_copy(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # a file system without links, or too many of one file
        shutil.copyfile(file, target)


logger = logging.getLogger(__name__)

DATABASE_FILE = "published.duckdb"
RECOMMENDATIONS_FILE = "recommendations.parquet"
ROWS_PER_BATCH = 1 << 17


def create_publication(home: Home, run_id: str) -> Path:
    """An empty folder for what a run publishes."""
    folder = home.publications / run_id
    checksums.remove_path(folder)
    folder.mkdir(parents=True)
    return folder


def find_reusable_publication(home: Home, lists: str | None, logs: str | None) -> Path | None:
    """The publication that stands, where its lists and the logs behind them are these, and their files whole.

    Args:
        lists, logs: digests, kept among its facts; None where they are not known.
    """
    facts = load_current(home)
    if None in (lists, logs) or (facts.get("lists"), facts.get("logs")) != (lists, logs):
        return None
    folder = home.published.resolve()
    try:
        checksums.load_checked_facts(folder, MANIFEST_FILE, lambda name: name in (DATABASE_FILE, RECOMMENDATIONS_FILE))
    except checksums.DamagedFile as error:
        logger.warning("%s; it is made anew", error)
        return None
    return folder


def copy_tables(home: Home, folder: Path, tables: Iterable[tuple[str, duckdb.DuckDBPyRelation]]) -> None:
    """Put tables into the folder's database by their names, each of the rows that a relation has; it may be there already."""
    with duckdb.connect(os.path.abspath(folder / DATABASE_FILE), config=_reader_config(home)) as target:
        for name, rows in tables:
            target.register("incoming", rows.to_arrow_reader(ROWS_PER_BATCH))
            target.execute(f"create or replace table {name} as select * from incoming")
            target.unregister("incoming")


def activate_publication(home: Home, folder: Path, facts: dict[str, Any], keep: int) -> None:
    """Close a folder, point `published` to it, and drop all others but the latest and the one that stood before.

    Args:
        facts: plain data on the publication; `fits` among them, the [model, digest] of each that readers may ask.
        keep: how many publications stay, this one among them.
    """
    before, others = load_current(home), list_publications(home)
    place = 1 + max((other.get("place", 0) for other in others), default=0)
    at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    checksums.write_manifest(
        folder, MANIFEST_FILE, {**facts, "published_at": at, "place": place, "before": before.get("run_id")}
    )
    switch_link(home, folder)
    staying = {folder.name, before.get("run_id"), *[other["run_id"] for other in others[: keep - 1]]}
    for other in home.publications.iterdir():
        if other.name not in staying:
            checksums.remove_path(other)


def switch_link(home: Home, folder: Path) -> None:
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


def quote_path(path: Path) -> str:
    """A path as it stands between single quotes in SQL."""
    return str(path.absolute()).replace("'", "''")


def load_current(home: Home) -> dict[str, Any]:
    """The facts of the publication that `published` points to; empty where none does, or its record is damaged."""
    if not home.published.is_symlink():
        return {}
    return checksums.find_facts(home.published.resolve(), MANIFEST_FILE)


def list_publications(home: Home) -> list[dict[str, Any]]:
    """The facts of every publication that is kept, the newest first."""
    found = filter(None, (checksums.find_facts(folder, MANIFEST_FILE) for folder in home.publications.glob("*")))
    return sorted(found, key=lambda facts: (facts.get("place", 0), facts["run_id"]), reverse=True)


def list_unfinished(home: Home) -> list[Path]:
    """Folders that were never closed, for the run that made them was killed or failed."""
    shown = home.published.resolve()
    return [one for one in home.publications.glob("*") if not (one / MANIFEST_FILE).exists() and one.resolve() != shown]


def list_used_fits(home: Home) -> set[tuple[str, str]]:
    """(model, digest) of the fits that the publications in the home ask for an explanation."""
    return {(model, digest) for facts in list_publications(home) for model, digest in facts["fits"]}


@contextlib.contextmanager
def open_published_tables(home: Home) -> Iterator[duckdb.DuckDBPyConnection]:
    """The tables of what is published now, to read; a run that publishes meanwhile changes nothing of them.

    Raises:
        InputError: nothing is published, or by an earlier version of this program.
        Damaged: one of the files is not what was published; those of the model are looked at by who reads them.
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
    """The home's limits, and no file of DuckDB's own beside the database."""
    return {**warehouse.database_config(home), "temp_directory": ""}
