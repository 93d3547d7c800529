"""Store of fitted models, in `<home>/<dataset>/models/<model>/<digest>/`.

The digest is that of all inputs of a fit: the matrices, settings, seed, versions of the numerical libraries and source
of the model. So a stored fit need not be repeated. Beside the model's files lies `fit.json`, written last: what was
fitted, its cost, and the sha256 of each file.
"""

import hashlib
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

from oneclass import sql
from oneclass.models import fingerprint, registry
from oneclass.models.base import Model
from oneclass.models.settings import ModelSettings
from oneclass.tasks.stores import checksums, durable, warehouse
from oneclass.tasks.stores.checksums import compute_key
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

RECORD_FILE = "fit.json"
UNSTORED_FIELDS = ("model", "digest")  # of `Fit`: given by the path
ARRAY_COLUMNS = ("protocol", "model", "array", "entries", "not_finite")  # of `fitted_arrays`
ENTRIES_PER_CHECK = 1 << 22  # entries of a memory-mapped array checked at a time


@dataclass(frozen=True)
class Fit:
    """A fitted model in the store, and its cost.

    Attributes:
        digest: its name in the store.
        key: the digest of the same fit without a warm start.
        matrices: digest of the matrices that it was fitted on.
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
    """Compute the digest of a fit from its edges, settings, seed, library versions and the source of the model.

    Args:
        matrices: digest of the matrices to fit on.
    """
    kind = registry.MODELS[model]
    kinds = [kind, *kind.component_settings(settings)]
    libraries = ["numpy", "scipy", "numba"] + ["torch"] * any(one.extra == "neural" for one in kinds)
    versions = {name: checksums.library_version(name) for name in libraries}
    source = " ".join(map(fingerprint.fingerprint_model, kinds))
    return compute_key(matrices, model, settings.model_dump(mode="json"), seed, source, versions)[:16]


def warm_fit_digest(key: str, previous: Fit | None) -> str:
    """Return the digest of a fit with this key that starts at `previous`; that of `previous` if nothing is new."""
    if previous is None:
        return key
    if previous.key == key:
        return previous.digest
    return hashlib.sha256(f"{key} from {previous.digest}".encode()).hexdigest()[:16]


def find_fit(home: Home, model: str, digest: str) -> Fit | None:
    """Find the fit with this digest. None if absent, or damaged, which is logged."""
    folder = fit_folder(home, model, digest)
    return (
        _fit_from_facts(model, digest, lambda: checksums.load_checked_facts(folder, RECORD_FILE))
        if os.path.lexists(folder)
        else None
    )


def find_matrices_digest(home: Home, model: str, digest: str) -> str | None:
    """Return the digest of the matrices of a fit, from its record only; None as in `find_fit`."""
    fit = _load_record(home, model, digest)
    return fit.matrices if fit else None


def load_saved_bytes(home: Home, model: str, digest: str) -> int:
    """Return the size of a saved fit, from its record only; 0 if it is absent or damaged."""
    fit = _load_record(home, model, digest)
    return fit.saved_bytes if fit else 0


def store_fit(
    home: Home,
    estimator: Model,
    digest: str,
    *,
    key: str,
    matrices: str,
    seconds: float,
    peak_bytes: int,
) -> Fit:
    """Write a fitted model atomically, replacing a damaged one.

    Args:
        digest, key, matrices, seconds, peak_bytes: as in `Fit`.
    """
    folder = fit_folder(home, estimator.name, digest)
    partial = folder.with_name(f"partial-{uuid.uuid4().hex}")
    durable.make_folder(partial)
    try:
        estimator.save(partial)
        size = _folder_bytes(partial)
        fit = Fit(estimator.name, digest, key, matrices, seconds, peak_bytes, size)
        checksums.write_manifest(
            partial, RECORD_FILE, {name: value for name, value in asdict(fit).items() if name not in UNSTORED_FIELDS}
        )
        checksums.remove_path(folder)
        durable.replace_path(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return fit


def load_fit(home: Home, model: str, digest: str) -> Model:
    """Load the fit with this digest, verifying its checksums; arrays are memory-mapped, threads as in the home's
    limits.

    Raises:
        DamagedFile: it differs from what was stored. A run fits it again.
    """
    folder = fit_folder(home, model, digest)
    checksums.load_checked_facts(folder, RECORD_FILE)
    return registry.load_model(model, folder, threads=home.limits.threads)


def checkpoint_folder(home: Home, model: str, digest: str) -> Path:
    """Return the folder where an unfinished fit may store its checkpoints."""
    return fit_folder(home, model, f"unfinished-{digest}")


def register_arrays(connection: duckdb.DuckDBPyConnection, home: Home, recorded: Mapping[str, Sequence[Fit]]) -> None:
    """Create the temporary table `fitted_arrays` that the contract reads.

    Args:
        recorded: fits by protocol.
    """
    rows = []
    for protocol, of_protocol in recorded.items():
        for fit in of_protocol:
            for file in sorted(fit_folder(home, fit.model, fit.digest).glob("*.npy")):
                array = np.load(file, mmap_mode="r", allow_pickle=False)
                rows.append((protocol, fit.model, file.stem, array.size, _count_not_finite(array)))
    connection.execute(sql.statement("train/fitted_arrays"))
    warehouse.insert(connection, "fitted_arrays", pl.DataFrame(rows, list(ARRAY_COLUMNS), orient="row"))


def delete_other_fits(home: Home, retained: Collection[tuple[str, str]]) -> tuple[list[Fit], int]:
    """Delete every fit except those in `retained`, and partial writes. Returns the remaining fits and the number of
    deleted folders.

    Args:
        retained: (model, digest) pairs; one with a damaged record is deleted too, since it would be fitted again.
    """
    remaining, deleted = [], 0
    for folder in home.models.glob("*/*"):
        name = folder.parent.name, folder.name
        fit = _load_record(home, *name) if name in retained else None
        if fit:
            remaining.append(fit)
        else:
            checksums.remove_path(folder)
            deleted += 1
    return remaining, deleted


def _load_record(home: Home, model: str, digest: str) -> Fit | None:
    """Load a fit's record as `find_fit` does, without verifying its arrays."""
    folder = fit_folder(home, model, digest)
    return (
        _fit_from_facts(model, digest, lambda: checksums.load_facts(folder, RECORD_FILE))
        if os.path.lexists(folder)
        else None
    )


def _fit_from_facts(model: str, digest: str, facts: Callable[[], dict[str, Any]]) -> Fit | None:
    try:
        known = Fit.__dataclass_fields__  # an earlier version recorded more
        return Fit(model, digest, **{name: value for name, value in facts().items() if name in known})
    except checksums.DamagedFile as error:
        logger.warning("%s; the fit counts as absent, and a run makes it anew", error)
        return None


def fit_folder(home: Home, model: str, digest: str) -> Path:
    """Return the folder of a fit, whether it exists or not."""
    return home.models / model / digest


def _folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.name != RECORD_FILE)


def _count_not_finite(array: np.ndarray) -> int:
    flat = array.reshape(-1)
    blocks = (flat[start : start + ENTRIES_PER_CHECK] for start in range(0, len(flat), ENTRIES_PER_CHECK))
    return sum(int(np.count_nonzero(~np.isfinite(block))) for block in blocks)
