"""The published model and what serves it, in `model/` of a publication: the fit, the histories, the ids and the titles.

Reading it loads neither DuckDB nor Prefect.
"""

import functools
import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages, with_recency_ranks
from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import checksums
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

SeenChoice = Literal["include", "exclude"]

MANIFEST_FILE = "manifest.json"
MODEL_FOLDER = "model"
LISTS_FILE = "lists.parquet"  # of `published.lists`; absent in publications of earlier versions
MATRIX_FILES = ("train_indptr.npy", "train_indices.npy", "train_counts.npy")
RECOMMENDS_FILE = "recommends.json"
RECENCY_RANKS_FILE = "train_places.npy"  # only if the split keeps the order of likes
ATTRIBUTES_FILE = "{}_attributes.parquet"  # of a side, only if the data set has such a table
COMPANION_FOLDER = "companion"  # only if another model says how sure and why: its fit
CALIBRATIONS_FILE = "like_calibrations.json"  # only if `like` is calibrated
RULES_FILE = "rules.json"  # only if lists obey rules
EXCLUDED_FILES = ("excluded_indptr.npy", "excluded_indices.npy")  # only if rules keep pairs from lists
EVENT_FILES = ("train_event_starts.npy", "train_event_ages.npy")  # only if it keeps the times of events


@dataclass(frozen=True)
class PublishedModel:
    """The model of a publication, with the ids and histories to recommend by.

    Attributes:
        publication: the facts in the publication's manifest, `run_id` among them.
        model, score, digest: of the fit.
        fit: its folder.
        companion: name and folder of the fit that says how sure and why; None if the model itself does, or none.
        like_calibrations: of `Calibrations`, as plain data; empty without any.
        items: item_id, title, users; one row per column of the fit.
        users: user_id; one row per row of `histories`.
        histories: (users, items), memory-mapped event counts. `SequentialHistories` if the run kept the order or the
            times of likes.
        rules: those that its lists obey, as plain data; empty without any.
        excluded: (users, items), what rules keep from each user; None without such rules.
        attributes: by `item` and `user`, as `tasks.attributes.load_all_attributes` returns them.
        lists: of `published.lists`; None if an earlier version published.
    """

    publication: dict[str, Any]
    model: str
    score: str
    digest: str
    fit: Path
    companion: tuple[str, Path] | None
    like_calibrations: dict[str, Any]
    items: pl.DataFrame
    users: pl.DataFrame
    histories: csr_matrix
    attributes: Mapping[str, pl.DataFrame]
    rules: dict[str, Any]
    excluded: csr_matrix | None
    lists: pl.DataFrame | None


def write_published_model(
    publication: Path,
    *,
    recommends: dict[str, str],
    fit: Path,
    matrices: Path,
    items: pl.DataFrame,
    users: pl.DataFrame,
    attributes: Mapping[str, pl.DataFrame],
    companion: tuple[str, Path] | None = None,
    like_calibrations: dict[str, Any] | None = None,
    rules: dict[str, Any] | None = None,
    excluded: csr_matrix | None = None,
) -> None:
    """Write the model folder of a publication that is not complete yet.

    Args:
        recommends: `model`, `score` and `digest`.
        fit, matrices: folders in the stores; all files of a fit except its record are linked.
        items, users, attributes, companion, like_calibrations, rules, excluded: as in `PublishedModel`.
    """
    folder = publication / MODEL_FOLDER
    _link_fit(fit, folder / "fit")
    if companion:
        _link_fit(companion[1], folder / COMPANION_FOLDER / companion[0])
    (folder / "histories").mkdir()
    for name in (*MATRIX_FILES, RECENCY_RANKS_FILE, *EVENT_FILES):
        if name in MATRIX_FILES or (matrices / name).exists():
            _link_or_copy(matrices / name, folder / "histories" / name)
    items.write_parquet(folder / "items.parquet")
    users.write_parquet(folder / "users.parquet")
    for side, table in attributes.items():
        table.write_parquet(folder / ATTRIBUTES_FILE.format(side))
    for name, content in (
        (RECOMMENDS_FILE, recommends),
        (CALIBRATIONS_FILE, like_calibrations),
        (RULES_FILE, rules),
    ):
        if content is not None:
            (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if excluded is not None:
        for name, array in zip(EXCLUDED_FILES, (excluded.indptr, excluded.indices), strict=True):
            np.save(folder / name, array)


def copy_published_model(before: Path, publication: Path) -> None:
    """Copy the model of another publication, if it has one, whose recommendations stay."""
    if (before / MODEL_FOLDER).is_dir():
        shutil.copytree(before / MODEL_FOLDER, publication / MODEL_FOLDER, copy_function=_link_or_copy)


def _link_fit(fit: Path, target: Path) -> None:
    # The record has the time of the fit, which differs between equal runs.
    shutil.copytree(fit, target, copy_function=_link_or_copy, ignore=shutil.ignore_patterns("fit.json"))


def seen_choice(facts: dict[str, Any]) -> SeenChoice:
    """Return from the facts of a publication whether its lists include seen items; those of earlier versions do not."""
    return facts.get("seen", "exclude")


def has_published_model(home: Home) -> bool:
    """Whether the current publication has a model."""
    return (home.published / MODEL_FOLDER).is_dir()


def load_titles(home: Home, items: set[str]) -> dict[str, str]:
    """Return the published titles of some items by id; empty if nothing is published, or it is unreadable."""
    try:
        file = home.published / MODEL_FOLDER / "items.parquet"
        found = pl.read_parquet(file, columns=["item_id", "title"], glob=False)
    except (OSError, pl.exceptions.PolarsError):
        return {}
    wanted = found.filter(pl.col("item_id").is_in(list(items)) & pl.col("title").is_not_null())
    return dict(wanted.iter_rows())


def load_published_model(home: Home) -> PublishedModel:
    """Load the model of the current publication; later publications do not change it.

    Raises:
        InputError: nothing is published, no recommendations are, or an earlier version of this program published them.
        DamagedFile: a file differs from what was published.
    """
    while True:
        folder = home.published.resolve()
        try:
            return _read_published_model(home, folder)
        except (OSError, checksums.DamagedFile):
            # Otherwise a newer publication replaced it during the read: retry.
            if home.published.resolve() == folder:
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
            publication, MANIFEST_FILE, lambda name: name.startswith(f"{MODEL_FOLDER}/") or name == LISTS_FILE
        )
    except checksums.DamagedFile as error:
        raise checksums.DamagedFile(f"{error}. What is published is not trusted; run {run} again.") from error
    items, users = (pl.read_parquet(folder / f"{name}.parquet", glob=False) for name in ("items", "users"))
    # Plain arrays, because each access to a `memmap` costs microseconds.
    indptr, indices, counts = (np.asarray(np.load(folder / "histories" / name, mmap_mode="r")) for name in MATRIX_FILES)
    file = folder / "histories" / RECENCY_RANKS_FILE
    recency_ranks = np.asarray(np.load(file, mmap_mode="r")) if file.exists() else None
    histories = csr_view(counts, indices, indptr, len(items), recency_ranks)
    if all((folder / "histories" / name).exists() for name in EVENT_FILES):
        event_arrays = (np.asarray(np.load(folder / "histories" / name, mmap_mode="r")) for name in EVENT_FILES)
        histories = with_event_ages(histories, EventAges(*event_arrays))
    return PublishedModel(
        facts,
        **_read_json(folder / RECOMMENDS_FILE),
        fit=folder / "fit",
        companion=next(((fit.name, fit) for fit in (folder / COMPANION_FOLDER).glob("*")), None),
        like_calibrations=_read_json(folder / CALIBRATIONS_FILE),
        items=items,
        users=users,
        histories=histories,
        attributes=_read_attributes(folder),
        rules=_read_json(folder / RULES_FILE),
        excluded=_read_excluded(folder, len(items)),
        lists=pl.read_parquet(file, glob=False) if (file := publication / LISTS_FILE).exists() else None,
    )


def _read_json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _read_excluded(folder: Path, width: int) -> csr_matrix | None:
    if not (folder / EXCLUDED_FILES[0]).exists():
        return None
    indptr, indices = (np.load(folder / name) for name in EXCLUDED_FILES)
    return csr_view(np.ones(len(indices), dtype=np.float32), indices, indptr, width)


def _read_attributes(folder: Path) -> dict[str, pl.DataFrame]:
    files = {side: folder / ATTRIBUTES_FILE.format(side) for side in ("item", "user")}
    return {side: pl.read_parquet(file, glob=False) for side, file in files.items() if file.exists()}


@functools.lru_cache(maxsize=4)
def _csr_template(rows: int, width: int) -> dict[str, Any]:
    """Return the attributes of a matrix of this shape, to copy: scipy's constructor is several times slower."""
    # scipy-stubs let a shape make a matrix of float64 only.
    matrix = csr_matrix((rows, width), dtype=np.float32)  # pyright: ignore[reportCallIssue, reportArgumentType]
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return vars(matrix)


def csr_view(
    counts: np.ndarray, columns: np.ndarray, indptr: np.ndarray, width: int, recency_ranks: np.ndarray | None = None
) -> csr_matrix:
    """Build a CSR view over arrays of sorted columns, unchecked; with ranks, `SequentialHistories`."""
    matrix = object.__new__(csr_matrix)
    vars(matrix).update(_csr_template(len(indptr) - 1, width), data=counts, indices=columns, indptr=indptr)
    return with_recency_ranks(matrix, recency_ranks)


def _link_or_copy(file: str | Path, target: str | Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # no hard links on this file system, or too many to one file
        shutil.copyfile(file, target)
