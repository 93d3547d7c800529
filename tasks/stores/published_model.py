"""The model of a publication, `<publication>/model/`: all that answers need, readable without warehouse or DuckDB.

    recommends.json    the model, the score that orders items, the fit's digest
    fit/               the fit on every edge, as the store of fits has it
    histories/         the matrix that it was fitted on, as the store of matrices has it: a row a user
    items.parquet      item_id, title (null where none was given), users; a row a column of the fit
    users.parquet      user_id; a row a row of the matrix

Files that lie in a store are linked, not copied, where the file system lets them: they are never written to again.
"""

import functools
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from models.numerics.ordered_histories import ordered
from tasks.errors import InputError
from tasks.stores import manifest
from tasks.stores.home import Home

RECORD = "manifest.json"  # of the publication
FOLDER = "model"
MATRIX = ("train_indptr.npy", "train_indices.npy", "train_counts.npy")
PLACES = "train_places.npy"  # where the split keeps the order of likes


@dataclass(frozen=True)
class PublishedModel:
    """What lies in the folder.

    Attributes:
        publication: the facts in the publication's record; `run_id` among them.
        model, score, digest: of the fit.
        fit: its folder.
        items: item_id, title, users; a row a column of the fit.
        users: user_id; a row a row of `histories`.
        histories: (users, items), memory-mapped; a value is the number of events behind the edge. `OrderedHistories` where
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


def write(
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
    folder = publication / FOLDER
    (folder / "fit").mkdir(parents=True)
    (folder / "histories").mkdir()
    for file in sorted(fit.iterdir()):
        if file.name != "fit.json":  # it says how long the fit took, which differs between equal runs
            _link(file, folder / "fit" / file.name)
    for name in (*MATRIX, PLACES):
        if name in MATRIX or (matrices / name).exists():
            _link(matrices / name, folder / "histories" / name)
    items.write_parquet(folder / "items.parquet")
    users.write_parquet(folder / "users.parquet")
    (folder / "recommends.json").write_text(json.dumps(recommends, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def carry(before: Path, publication: Path) -> None:
    """Take the model of another publication over, where it has one: the recommendations stay those that stood."""
    for file in sorted((before / FOLDER).rglob("*")):
        if file.is_file():
            target = publication / file.relative_to(before)
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(file, target)


def is_there(home: Home) -> bool:
    """Whether what is published recommends anything that can be asked."""
    return (home.published / FOLDER).is_dir()


def titles(home: Home, items: set[str]) -> dict[str, str]:
    """Titles of some items, by their ids, as they are published; empty where nothing is, or it cannot be read."""
    try:
        found = pl.read_parquet(home.published / FOLDER / "items.parquet", columns=["item_id", "title"])
    except (OSError, pl.exceptions.PolarsError):
        return {}
    wanted = found.filter(pl.col("item_id").is_in(list(items)) & pl.col("title").is_not_null())
    return dict(wanted.iter_rows())


def read(home: Home) -> PublishedModel:
    """The model of what is published now; a run that publishes meanwhile changes nothing of it.

    Raises:
        InputError: nothing is published, or no recommendations, or by an earlier version of this program.
        Damaged: one of the files is not what was published.
    """
    while True:
        folder = home.published.resolve()
        try:
            return _read(home, folder)
        except (OSError, manifest.Damaged):
            if home.published.resolve() == folder:  # else it was dropped for a newer one while it was read
                raise


def _read(home: Home, publication: Path) -> PublishedModel:
    run = f"`python -m flows.backfill --dataset {home.dataset}` with the same --home"
    if not publication.is_dir():
        raise InputError(f"{home.published}: nothing is published yet. Run {run} first.")
    folder = publication / FOLDER
    if not folder.is_dir():
        raise InputError(
            f"{home.published}: holds no model to ask. Either an earlier version of this program published it, and "
            f"{run} publishes one that does; or it is of a run of the protocol `given` alone, which publishes its "
            "evaluation and recommends nothing: run another protocol too."
        )
    try:
        facts = manifest.checked(publication, RECORD, lambda name: name.startswith(f"{FOLDER}/"))
    except manifest.Damaged as error:
        raise manifest.Damaged(f"{error}. What is published is not trusted; run {run} again.") from error
    items, users = (pl.read_parquet(folder / f"{name}.parquet") for name in ("items", "users"))
    # As plain arrays: each look into a `memmap` costs microseconds.
    indptr, indices, counts = (np.asarray(np.load(folder / "histories" / name, mmap_mode="r")) for name in MATRIX)
    file = folder / "histories" / PLACES
    places = np.asarray(np.load(file, mmap_mode="r")) if file.exists() else None
    histories = csr_of(counts, indices, indptr, len(items), places)
    recommends = json.loads((folder / "recommends.json").read_text(encoding="utf-8"))
    return PublishedModel(facts, **recommends, fit=folder / "fit", items=items, users=users, histories=histories)


@functools.lru_cache(maxsize=4)
def _blank(rows: int, width: int) -> dict[str, Any]:
    """What a matrix has, to be copied: scipy takes several times as long to make one."""
    matrix = csr_matrix((rows, width), dtype=np.float32)
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return vars(matrix)


def csr_of(
    counts: np.ndarray, columns: np.ndarray, indptr: np.ndarray, width: int, places: np.ndarray | None = None
) -> csr_matrix:
    """A CSR view over arrays of sorted columns, neither copied nor checked; with places, `OrderedHistories`."""
    matrix = object.__new__(csr_matrix)
    vars(matrix).update(_blank(len(indptr) - 1, width), data=counts, indices=columns, indptr=indptr)
    return ordered(matrix, places)


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # a file system without links, or too many of one file
        shutil.copyfile(file, target)
