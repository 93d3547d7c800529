"""The published model and what serves it, in `model/` of a publication: the fit, the histories, the ids and the titles.

Reading it loads neither DuckDB nor Prefect.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import checksums
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import read_matrix

logger = logging.getLogger(__name__)

SeenChoice = Literal["include", "exclude"]

MANIFEST_FILE = "manifest.json"
MODEL_FOLDER = "model"
LISTS_FILE = "lists.parquet"  # of `published.lists`
RULES_FILE = "rules.json"  # only if lists obey rules
# Of the training matrix; the order of likes and the times of events only if the split keeps them.
HISTORY_ARRAYS = [f"train_{kind}" for kind in ("indptr", "indices", "counts", "places", "event_starts", "event_ages")]


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
        lists: of `published.lists`.
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
    lists: pl.DataFrame


def write_published_model(
    publication: Path,
    *,
    fits: Mapping[str, Path],
    matrices: Path,
    tables: Mapping[str, pl.DataFrame],
    descriptions: Mapping[str, Mapping[str, Any] | None],
    excluded: csr_matrix | None = None,
) -> None:
    """Write the model folder of a publication that is not complete yet.

    Args:
        fits: the stored fits by their folder here, `fit` and `companion/<model>`; all files except the record are
            linked.
        matrices: the folder of the split in its store.
        tables: `items`, `users`, `item_attributes` and `user_attributes`, as in `PublishedModel`.
        descriptions: `recommends`, with `model`, `score` and `digest`; `like_calibrations` and `rules`, or None.
        excluded: as in `PublishedModel`.
    """
    folder = publication / MODEL_FOLDER
    for name, fit in fits.items():
        # The record has the time of the fit, which differs between equal runs.
        shutil.copytree(fit, folder / name, copy_function=_link_or_copy, ignore=shutil.ignore_patterns("fit.json"))
    (folder / "histories").mkdir()
    for file in (matrices / f"{name}.npy" for name in HISTORY_ARRAYS):
        if file.exists():
            _link_or_copy(file, folder / "histories" / file.name)
    for name, table in tables.items():
        table.write_parquet(folder / f"{name}.parquet")
    for name, content in descriptions.items():
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if excluded is not None:
        for kind in ("indptr", "indices"):
            np.save(folder / f"excluded_{kind}.npy", getattr(excluded, kind))


def copy_published_model(before: Path, publication: Path) -> None:
    """Copy the model of another publication, if it has one, whose recommendations stay."""
    if (before / MODEL_FOLDER).is_dir():
        shutil.copytree(before / MODEL_FOLDER, publication / MODEL_FOLDER, copy_function=_link_or_copy)


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
        InputError: nothing is published, or no recommendations are.
        DamagedFile: a file differs from what was published.
    """
    while True:
        folder = home.published.resolve()
        try:
            return _read_published_model(home)
        except (OSError, checksums.DamagedFile):
            # Otherwise a newer publication replaced it during the read: retry.
            if home.published.resolve() == folder:
                raise


def check_published(home: Home, wanted: Callable[[str], bool]) -> tuple[Path, dict[str, Any]]:
    """Return the folder of the current publication and the facts in its manifest, after verifying the wanted files.

    Raises:
        InputError: nothing is published.
        DamagedFile: a file differs from what was published.
    """
    folder, run = home.published.resolve(), f"`python -m flows.backfill --dataset {home.dataset}` with the same --home"
    if not folder.is_dir():
        raise InputError(f"{home.published}: nothing is published yet. Run {run} first.")
    try:
        return folder, checksums.load_checked_facts(folder, MANIFEST_FILE, wanted)
    except checksums.DamagedFile as error:
        raise checksums.DamagedFile(f"{error}. What is published is not trusted; run {run} again.") from error


def _read_published_model(home: Home) -> PublishedModel:
    if home.published.is_dir() and not has_published_model(home):
        raise InputError(
            f"{home.published}: holds no model to ask, for its run was of the protocol `given` alone, which publishes "
            "its evaluation and recommends nothing: run another protocol too."
        )
    publication, facts = check_published(home, lambda name: name.startswith(f"{MODEL_FOLDER}/") or name == LISTS_FILE)
    folder = publication / MODEL_FOLDER
    tables = {file.stem: pl.read_parquet(file, glob=False) for file in folder.glob("*.parquet")}
    descriptions = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")}
    width, excluded, arrays = len(tables["items"]), _load_arrays(folder), _load_arrays(folder / "histories")
    histories = read_matrix(arrays, "train", width, owner="train")
    assert histories is not None
    ones = np.ones(len(excluded.get("excluded_indices", ())), dtype=np.float32)
    return PublishedModel(
        facts,
        **descriptions["recommends"],
        fit=folder / "fit",
        companion=next(((fit.name, fit) for fit in (folder / "companion").glob("*")), None),
        like_calibrations=descriptions.get("like_calibrations", {}),
        items=tables["items"],
        users=tables["users"],
        histories=histories,
        attributes={side: tables[name] for side in ("item", "user") if (name := f"{side}_attributes") in tables},
        rules=descriptions.get("rules", {}),
        excluded=read_matrix({**excluded, "excluded_counts": ones}, "excluded", width),
        lists=pl.read_parquet(publication / LISTS_FILE, glob=False),
    )


def _load_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Load arrays by name; plain ones, because each access to a `memmap` costs microseconds."""
    return {file.stem: np.asarray(np.load(file, mmap_mode="r")) for file in folder.glob("*.npy")}


def _link_or_copy(file: str | Path, target: str | Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # no hard links on this file system, or too many to one file
        shutil.copyfile(file, target)
