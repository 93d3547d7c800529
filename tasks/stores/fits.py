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

from oneclass import sql
from oneclass.models import fingerprint, registry
from oneclass.models.base import Model
from oneclass.models.settings import ModelSettings
from oneclass.tasks.errors import SharedStoreUnavailable
from oneclass.tasks.stores import checksums, remote
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

RECORD_FILE = "fit.json"
UNSTORED_FIELDS = ("model", "digest")  # of a fit: its place in the store says them
ENTRIES_PER_CHECK = 1 << 22  # of a memory-mapped array that is looked through


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


def compute_fit_key(matrices: str, model: str, settings: ModelSettings, seed: int) -> str:
    """The digest of a fit: equal for equal edges, settings, seed, library versions and source of the model.

    Args:
        matrices: digest of the matrices that the fit is of.
    """
    kind = registry.MODELS[model]
    kinds = [kind, *kind.component_settings(settings)]
    libraries = ["numpy", "scipy", "numba"] + ["torch"] * any(one.extra == "neural" for one in kinds)
    versions = {name: importlib.metadata.version(name) for name in libraries}
    source = " ".join(map(fingerprint.fingerprint_model, kinds))
    parts = [matrices, model, settings.model_dump(mode="json"), seed, source, versions]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def warm_fit_digest(key: str, previous: Fit | None) -> str:
    """The digest of the fit of that key that begins at `previous`: its own where nothing is new since."""
    if previous is None:
        return key
    if previous.key == key:
        return previous.digest
    return hashlib.sha256(f"{key} from {previous.digest}".encode()).hexdigest()[:16]


def find_fit(home: Home, model: str, digest: str) -> Fit | None:
    """The fit of that digest; None where the store, and its URL, have none, or one that is damaged, which is said."""
    folder = fit_folder(home, model, digest)
    remote.download(home, folder, RECORD_FILE)
    return (
        _fit_from_facts(model, digest, lambda: checksums.load_checked_facts(folder, RECORD_FILE))
        if os.path.lexists(folder)
        else None
    )


def find_matrices_digest(home: Home, model: str, digest: str) -> str | None:
    """The digest of the matrices that a fit is of, from its record alone; None as in `find`."""
    fit = _load_record(home, model, digest)
    return fit.matrices if fit else None


def load_saved_bytes(home: Home, model: str, digest: str) -> int:
    """Size of a saved fit, from its record alone; 0 where the store has none, or one that is damaged."""
    fit = _load_record(home, model, digest)
    return fit.saved_bytes if fit else 0


def store_fit(
    home: Home, estimator: Model, digest: str, *, key: str, matrices: str, seconds: float, peak_bytes: int
) -> Fit:
    """Write a fitted model, whole or not at all, in place of a damaged one.

    Args:
        digest, key, matrices, seconds, peak_bytes: as in `Fit`.
    """
    folder = fit_folder(home, estimator.name, digest)
    partial = folder.with_name(f"partial-{uuid.uuid4().hex}")
    partial.mkdir(parents=True)
    try:
        estimator.save(partial)
        fit = Fit(estimator.name, digest, key, matrices, seconds, peak_bytes, _folder_bytes(partial))
        checksums.write_manifest(
            partial, RECORD_FILE, {name: value for name, value in asdict(fit).items() if name not in UNSTORED_FIELDS}
        )
        checksums.remove_path(folder)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return fit


def upload_fit(home: Home, fit: Fit) -> None:
    """Put a fit at the home's URL, if it has one.

    Raises:
        StoreLost: it cannot be written there.
    """
    remote.upload(home, fit_folder(home, fit.model, fit.digest), RECORD_FILE)


def download_fit(home: Home, fit: Fit) -> None:
    """Have a fit in the home that a worker has put at its URL, if it has one.

    Raises:
        StoreLost: it is not there, or not what was put there.
    """
    if home.store is not None and find_fit(home, fit.model, fit.digest) is None:
        raise SharedStoreUnavailable(remote.explain_absence(home, fit_folder(home, fit.model, fit.digest)))


def load_fit(home: Home, model: str, digest: str) -> Model:
    """The fitted model, its arrays memory-mapped, on as many threads as the home's limits give.

    Raises:
        Damaged: it is not what was kept. A run makes it anew.
    """
    folder = fit_folder(home, model, digest)
    remote.require(home, folder, RECORD_FILE)
    checksums.load_checked_facts(folder, RECORD_FILE)
    return registry.load_model(model, folder, threads=home.limits.threads)


def checkpoint_folder(home: Home, model: str, digest: str) -> Path:
    """The folder where a fit that is not at its end may keep what it goes on from."""
    return fit_folder(home, model, f"unfinished-{digest}")


def register_arrays(connection: duckdb.DuckDBPyConnection, home: Home, fit: Fit, protocol: str) -> None:
    """Make the temporary table `fitted_arrays` that the contract reads."""
    rows = []
    for file in sorted(fit_folder(home, fit.model, fit.digest).glob("*.npy")):
        array = np.load(file, mmap_mode="r", allow_pickle=False)
        rows.append((protocol, fit.model, file.stem, array.size, _count_not_finite(array)))
    connection.execute(sql.statement("train/fitted_arrays"))
    connection.executemany("insert into fitted_arrays values (?, ?, ?, ?, ?)", rows)


def delete_other_fits(home: Home, retained: Collection[tuple[str, str]]) -> tuple[list[Fit], int]:
    """Delete every fit but some, and what was left half-written; the fits that stay, and how many folders went.

    Args:
        kept: (model, digest) of those that stay, unless their record is damaged: such a one would be made anew.
    """
    staying, dropped = [], 0
    for folder in home.models.glob("*/*"):
        name = folder.parent.name, folder.name
        fit = _load_record(home, *name) if name in retained else None
        if fit:
            staying.append(fit)
        else:
            checksums.remove_path(folder)
            dropped += 1
    return staying, dropped


def _load_record(home: Home, model: str, digest: str) -> Fit | None:
    """As `find`, but for the arrays, which are not looked at."""
    folder = fit_folder(home, model, digest)
    return (
        _fit_from_facts(model, digest, lambda: checksums.load_facts(folder, RECORD_FILE))
        if os.path.lexists(folder)
        else None
    )


def _fit_from_facts(model: str, digest: str, facts: Callable[[], dict[str, Any]]) -> Fit | None:
    try:
        return Fit(model, digest, **facts())
    except checksums.DamagedFile as error:
        logger.warning("%s; the fit counts as absent, and a run makes it anew", error)
        return None


def fit_folder(home: Home, model: str, digest: str) -> Path:
    """Where a fit lies, or would."""
    return home.models / model / digest


def _folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.name != RECORD_FILE)


def _count_not_finite(array: np.ndarray) -> int:
    flat = array.reshape(-1)
    blocks = (flat[start : start + ENTRIES_PER_CHECK] for start in range(0, len(flat), ENTRIES_PER_CHECK))
    return sum(int(np.count_nonzero(~np.isfinite(block))) for block in blocks)
