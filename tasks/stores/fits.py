"""The store of fits: fitted models in `<home>/<dataset>/models/<model>/<digest>/`.

The digest is that of everything a fit depends on: the matrices, the settings, the seed, the versions of the numerical
libraries and the source of the model. So a fit that is in the store already need not be made again. Beside the model's
own files lies `fit.json`, written last: what the fit is of, what it took, and the sha256 of each file.
"""

import hashlib
import importlib.metadata
import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

import sql
from models import catalogue, fingerprint
from models.base import Model
from models.settings import ModelSettings
from tasks.errors import StoreLost
from tasks.stores import manifest, remote
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

RECORD = "fit.json"
NAMES = ("model", "digest")  # of a fit: its place in the store says them
ENTRIES_AT_A_TIME = 1 << 22  # of a memory-mapped array that is looked through


@dataclass(frozen=True)
class Fit:
    """A fitted model in the store, and what it took.

    Attributes:
        digest: its name in the store.
        key: the digest that it would have, had it not begun at an earlier fit.
        matrices: digest of the matrices that it is of.
        seconds: wall time of the fit.
        peak_bytes: the process's peak resident memory during it.
        saved_bytes: size of the saved form.
    """

    model: str
    digest: str
    key: str
    matrices: str
    seconds: float
    peak_bytes: int
    saved_bytes: int


def key_of(matrices: str, model: str, settings: ModelSettings, seed: int) -> str:
    """The digest of a fit: equal for equal edges, settings, seed, library versions and source of the model.

    Args:
        matrices: digest of the matrices that the fit is of.
    """
    kind = catalogue.MODELS[model]
    kinds = [kind, *kind.made_of(settings)]
    libraries = ["numpy", "scipy", "numba"] + ["torch"] * any(one.extra == "neural" for one in kinds)
    versions = {name: importlib.metadata.version(name) for name in libraries}
    source = " ".join(map(fingerprint.of_model, kinds))
    parts = [matrices, model, settings.model_dump(mode="json"), seed, source, versions]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def digest_from(key: str, previous: Fit | None) -> str:
    """The digest of the fit of that key that begins at `previous`: its own where nothing is new since."""
    if previous is None:
        return key
    if previous.key == key:
        return previous.digest
    return hashlib.sha256(f"{key} from {previous.digest}".encode()).hexdigest()[:16]


def find(home: Home, model: str, digest: str) -> Fit | None:
    """The fit of that digest; None where the store, and its URL, have none, or one that is damaged, which is said."""
    folder = folder_of(home, model, digest)
    remote.download(home, folder, RECORD)
    return _described(model, digest, lambda: manifest.checked(folder, RECORD)) if os.path.lexists(folder) else None


def matrices_of(home: Home, model: str, digest: str) -> str | None:
    """The digest of the matrices that a fit is of, from its record alone; None as in `find`."""
    fit = _recorded(home, model, digest)
    return fit.matrices if fit else None


def saved_bytes(home: Home, model: str, digest: str) -> int:
    """Size of a saved fit, from its record alone; 0 where the store has none, or one that is damaged."""
    fit = _recorded(home, model, digest)
    return fit.saved_bytes if fit else 0


def keep(home: Home, estimator: Model, digest: str, *, key: str, matrices: str, seconds: float, peak_bytes: int) -> Fit:
    """Write a fitted model, whole or not at all, in place of a damaged one.

    Args:
        digest, key, matrices, seconds, peak_bytes: as in `Fit`.
    """
    folder = folder_of(home, estimator.name, digest)
    partial = folder.with_name(f"partial-{uuid.uuid4().hex}")
    partial.mkdir(parents=True)
    try:
        estimator.save(partial)
        fit = Fit(estimator.name, digest, key, matrices, seconds, peak_bytes, _size(partial))
        manifest.seal(partial, RECORD, {name: value for name, value in asdict(fit).items() if name not in NAMES})
        manifest.remove(folder)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return fit


def share(home: Home, fit: Fit) -> None:
    """Put a fit at the home's URL, if it has one.

    Raises:
        StoreLost: it cannot be written there.
    """
    remote.upload(home, folder_of(home, fit.model, fit.digest), RECORD)


def bring(home: Home, fit: Fit) -> None:
    """Have a fit in the home that a worker has put at its URL, if it has one.

    Raises:
        StoreLost: it is not there, or not what was put there.
    """
    if home.store is not None and find(home, fit.model, fit.digest) is None:
        raise StoreLost(remote.explain_absence(home, folder_of(home, fit.model, fit.digest)))


def load(home: Home, model: str, digest: str) -> Model:
    """The fitted model, its arrays memory-mapped, on as many threads as the home's limits give.

    Raises:
        Damaged: it is not what was kept. A run makes it anew.
    """
    folder = folder_of(home, model, digest)
    remote.require(home, folder, RECORD)
    manifest.checked(folder, RECORD)
    return catalogue.load(model, folder, threads=home.limits.threads)


def checkpoints(home: Home, model: str, digest: str) -> Path:
    """The folder where a fit that is not at its end may keep what it goes on from."""
    return folder_of(home, model, f"unfinished-{digest}")


def register_arrays(connection: duckdb.DuckDBPyConnection, home: Home, fit: Fit, protocol: str) -> None:
    """Make the temporary table `fitted_arrays` that the contract reads."""
    rows = []
    for file in sorted(folder_of(home, fit.model, fit.digest).glob("*.npy")):
        array = np.load(file, mmap_mode="r", allow_pickle=False)
        rows.append((protocol, fit.model, file.stem, array.size, _not_finite(array)))
    connection.execute(sql.statement("train/fitted_arrays"))
    connection.executemany("insert into fitted_arrays values (?, ?, ?, ?, ?)", rows)


def drop_others(home: Home, kept: Collection[tuple[str, str]]) -> tuple[list[Fit], int]:
    """Delete every fit but some, and what was left half-written; the fits that stay, and how many folders went.

    Args:
        kept: (model, digest) of those that stay, unless their record is damaged: such a one would be made anew.
    """
    staying, dropped = [], 0
    for folder in home.models.glob("*/*"):
        name = folder.parent.name, folder.name
        fit = _recorded(home, *name) if name in kept else None
        if fit:
            staying.append(fit)
        else:
            manifest.remove(folder)
            dropped += 1
    return staying, dropped


def _recorded(home: Home, model: str, digest: str) -> Fit | None:
    """As `find`, but for the arrays, which are not looked at."""
    folder = folder_of(home, model, digest)
    return _described(model, digest, lambda: manifest.facts(folder, RECORD)) if os.path.lexists(folder) else None


def _described(model: str, digest: str, facts: Callable[[], dict[str, Any]]) -> Fit | None:
    try:
        return Fit(model, digest, **facts())
    except manifest.Damaged as error:
        logger.warning("%s; the fit counts as absent, and a run makes it anew", error)
        return None


def folder_of(home: Home, model: str, digest: str) -> Path:
    """Where a fit lies, or would."""
    return home.models / model / digest


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.name != RECORD)


def _not_finite(array: np.ndarray) -> int:
    flat = array.reshape(-1)
    blocks = (flat[start : start + ENTRIES_AT_A_TIME] for start in range(0, len(flat), ENTRIES_AT_A_TIME))
    return sum(int(np.count_nonzero(~np.isfinite(block))) for block in blocks)
