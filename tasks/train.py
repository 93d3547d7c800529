"""Train: one model on one protocol's training edges, kept in the model store.

A fit's digest is that of everything it depends on: the matrices, the settings, the seed and the source of
`models/`. A fit that is in the store already is taken from there, so that a run that was cut off goes on
where it stopped.
"""

import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import resource
import shutil
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_info

import sql
from models import fingerprint
from models.base import Epoch, Model, ModelSettings
from models.catalogue import MODELS
from tasks.errors import OneclassError
from tasks.orchestration import progress
from tasks.orchestration.artifacts import key as key_of
from tasks.orchestration.stage_task import stage_task
from tasks.stores import matrices, warehouse, warm_start
from tasks.stores.home import Home

logger = logging.getLogger(__name__)


class TrainSettings(BaseModel):
    """How every model is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    warm_start: bool = Field(
        False, description="Begin at the posterior of the latest run where a model can; results then depend on it."
    )


@dataclass(frozen=True)
class Fit:
    """A fitted model in the store, and what it took.

    Attributes:
        seconds: wall time of the fit.
        peak_bytes: the process's peak resident memory during it.
        saved_bytes: size of the saved form.
    """

    model: str
    protocol: str
    digest: str
    seconds: float
    peak_bytes: int
    saved_bytes: int


def train(
    home: Home,
    run_id: str,
    *,
    protocol: str,
    matrices_digest: str,
    model: str,
    settings: ModelSettings,
    seed: int,
    warm: bool = False,
) -> Fit:
    """Fit `model` on the training edges of `protocol`, keep it, and note it in `operations.model_fits`.

    Args:
        warm: begin at the posterior of the latest run, where the model can.

    Raises:
        OneclassError: the model cannot be fitted on this matrix.
    """
    previous = warm_start.latest_fit(home, protocol, model) if warm and MODELS[model].warm_startable else None
    if previous and not _is_whole(home.models / model / previous):
        previous = None
    fit = fitted(
        home,
        protocol=protocol,
        matrices_digest=matrices_digest,
        model=model,
        settings=settings,
        seed=seed,
        previous=previous,
    )
    with warehouse.stage(home, run_id, "train") as connection:
        connection.execute(
            "delete from operations.model_fits where run_id = ? and protocol = ? and model = ?",
            [run_id, protocol, model],
        )
        connection.execute(sql.statement("train/fits"), {"run_id": run_id, **vars(fit)})
        _register_arrays(connection, protocol, model, home.models / model / fit.digest)
    return fit


def fitted(
    home: Home,
    *,
    protocol: str,
    matrices_digest: str,
    model: str,
    settings: ModelSettings,
    seed: int,
    previous: str | None = None,
) -> Fit:
    """A fit in the model store: made now, or taken from there where one of that digest is whole.

    Args:
        previous: digest of an earlier fit to begin at.

    Raises:
        OneclassError: the model cannot be fitted on this matrix.
    """
    key = fit_digest(matrices_digest, model, settings, seed)
    digest = _continued(home, model, key, previous)
    folder = home.models / model / digest
    if _is_whole(folder):
        logger.info(
            "%s (%s) was fitted before on these edges with these settings, taken from the store", model, protocol
        )
    else:
        _warn_of_pinned_blas()
        estimator = MODELS[model](settings, seed=seed, threads=home.limits.threads)
        split = matrices.read(home, matrices_digest)
        if previous:
            warm_start.begin(home, estimator, previous, split)
        if estimator.stops_early and "validation" in split.parts:
            estimator.watch(split.parts["validation"].histories, split.parts["validation"].targets)
        estimator.checkpoints = folder.parent / f"unfinished-{digest}"
        what, sizes = f"{model} ({protocol})", [f"{number:,}" for number in (*split.train.shape, split.train.nnz)]
        logger.info("%s: fitting %s users x %s items, %s edges", what, *sizes)
        with progress.told(what, artifact_key=key_of(home.dataset, "train", model, protocol)) as tell:
            _fit_into(folder, estimator, split.train, {"matrices": matrices_digest, "key": key}, _epochs(tell))
    effort = json.loads((folder / "fit.json").read_text())
    fit = Fit(model, protocol, digest, effort["seconds"], effort["peak_bytes"], effort["saved_bytes"])
    took = f"{fit.seconds:.1f} s, peak memory {fit.peak_bytes / 1e6:.0f} MB, {fit.saved_bytes / 1e6:.1f} MB saved"
    logger.info("%s (%s): fitted in %s", model, protocol, took)
    return fit


def fit_digest(matrices_digest: str, model: str, settings: ModelSettings, seed: int) -> str:
    """The name of a fit: equal for equal edges, settings, seed, library versions and source of `models/`."""
    libraries = ["numpy", "scipy", "numba"] + ["torch"] * (MODELS[model].extra == "neural")
    versions = {name: importlib.metadata.version(name) for name in libraries}
    source = fingerprint.of_model(MODELS[model])
    parts = [matrices_digest, model, settings.model_dump(mode="json"), seed, source, versions]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def matrices_of(home: Home, model: str, digest: str) -> str:
    """The digest of the matrices that a fit in the store is of."""
    return json.loads((home.models / model / digest / "fit.json").read_text())["matrices"]


def _continued(home: Home, model: str, key: str, previous: str | None) -> str:
    """The digest of a fit of that key that begins at `previous`; `previous` itself where nothing is new since."""
    if previous is None:
        return key
    if json.loads((home.models / model / previous / "fit.json").read_text())["key"] == key:
        return previous
    return hashlib.sha256(f"{key} from {previous}".encode()).hexdigest()[:16]


def _epochs(tell: progress.Tell) -> Callable[[Epoch], None]:
    """What a model calls after every pass, told as progress."""

    def on_epoch(epoch: Epoch) -> None:
        watched = "".join(f", {name} {value:.6g}" for name, value in epoch.values.items())
        tell(epoch.number, epoch.of, f"epoch {epoch.number} of {epoch.of}{watched}, {epoch.seconds:.2f} s")

    return on_epoch


def _fit_into(
    folder: Path,
    estimator: Model,
    interactions: csr_matrix,
    origin: dict[str, str],
    on_epoch: Callable[[Epoch], None],
) -> None:
    """Fit and save, whole or not at all, with what the fit is of and what it took in `fit.json`."""
    _reset_peak()
    began = time.perf_counter()
    try:
        estimator.fit(interactions, on_epoch=on_epoch)
    except ValueError as error:
        raise OneclassError(f"train: {estimator.name} cannot be fitted: {error}") from error
    effort = {**origin, "seconds": time.perf_counter() - began, "peak_bytes": _peak()}
    partial = folder.parent / f"partial-{uuid.uuid4().hex}"
    partial.mkdir(parents=True)
    try:
        estimator.save(partial)
        effort["saved_bytes"] = _size(partial)
        (partial / "fit.json").write_text(json.dumps(effort) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _is_whole(folder: Path) -> bool:
    """The store holds the fit, in its full size; one that was damaged is made anew."""
    if not folder.exists():
        return False
    try:
        whole = json.loads((folder / "fit.json").read_text())["saved_bytes"] == _size(folder)
    except (OSError, ValueError, KeyError):
        whole = False
    if not whole:
        logger.warning("%s: is damaged, and fitted anew", folder)
    return whole


def _register_arrays(connection: duckdb.DuckDBPyConnection, protocol: str, model: str, folder: Path) -> None:
    """A temporary table of the fitted arrays, for the contract: how many entries, how many not finite."""
    rows = []
    for file in sorted(folder.glob("*.npy")):
        array = np.load(file, mmap_mode="r", allow_pickle=False)
        rows.append((protocol, model, file.stem, array.size, _not_finite(array)))
    connection.execute(sql.statement("train/fitted_arrays"))
    connection.executemany("insert into fitted_arrays values (?, ?, ?, ?, ?)", rows)


def _not_finite(array: np.ndarray) -> int:
    flat = array.reshape(-1)
    blocks = range(0, len(flat), 1 << 22)
    return sum(int(np.count_nonzero(~np.isfinite(flat[start : start + (1 << 22)]))) for start in blocks)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.name != "fit.json")


def _reset_peak() -> None:
    """Start the process's peak of resident memory afresh, where the kernel lets it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        logger.debug("the peak of memory cannot be reset here; it is the whole run's")


def _peak() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@functools.cache
def _warn_of_pinned_blas() -> None:
    """Say once that BLAS is held below what the processor can do; a user's setting is left as it is."""
    pinned = os.environ.get("OPENBLAS_CORETYPE")
    processor = Path("/proc/cpuinfo")
    if pinned and processor.exists() and "avx512f" in processor.read_text():
        kernels = {library.get("architecture") for library in threadpool_info()}
        logger.info("OPENBLAS_CORETYPE=%s holds BLAS to %s kernels; this processor has AVX-512", pinned, kernels)


train_task = stage_task(train, "train {model} on {protocol}")
