"""Train: one model on one protocol's training edges, kept in the store of fits.

A fit that is in the store already is taken from there, so that a run that was cut off goes on where it stopped.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.distributed import partition_by_edges
from oneclass.models.fit_options import BlockExecutor, Epoch, FitOptions, ScratchFactory, ValidationUsers
from oneclass.models.memory_estimates import estimate_block_bytes, estimate_coordinator_bytes
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks import memory_errors
from oneclass.tasks.cluster import LOCAL, Executor, PendingCall
from oneclass.tasks.errors import (
    ClusterUnavailable,
    InputError,
    OneclassError,
    ResourceExhausted,
    SharedStoreUnavailable,
)
from oneclass.tasks.orchestration import progress
from oneclass.tasks.orchestration.artifacts import artifact_key
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.stores import checksums, fits, matrices, remote_scratch, warehouse, warm_start
from oneclass.tasks.stores.fits import Fit
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.resources import format_size

logger = logging.getLogger(__name__)


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
    pending: PendingCall | None = None,
) -> Fit:
    """Fit `model` on the training edges of `protocol`, keep it, and note it in `operations.model_fits`.

    Args:
        warm: begin at the fit of the latest run, where the model can.
        pending: the fit, if it was submitted (`submit_fit`).

    Raises:
        OneclassError: the model cannot be fitted on this matrix.
    """
    if pending is not None:
        fit = pending.result()
        fits.download_fit(home, fit)
    else:
        previous = warm_start.find_latest_fit(home, protocol, model) if warm and MODELS[model].warm_startable else None
        fit = load_or_fit(home, matrices_digest, model, settings, seed, previous)
    with warehouse.run_stage(home, run_id, "train") as connection:
        connection.execute(
            "delete from operations.model_fits where run_id = ? and protocol = ? and model = ?",
            [run_id, protocol, model],
        )
        row = [run_id, protocol, fit.model, fit.digest, fit.seconds, fit.peak_bytes, fit.saved_bytes]
        connection.execute("insert into operations.model_fits values (?, ?, ?, ?, ?, ?, ?)", row)
        fits.register_arrays(connection, home, fit, protocol)
    return fit


def submit_fit(
    executor: Executor,
    home: Home,
    *,
    protocol: str,
    matrices_digest: str,
    model: str,
    settings: ModelSettings,
    seed: int,
) -> PendingCall:
    """Submit a fit; of a fit by blocks the coordinator submits the blocks, when the result is asked for."""
    matrix = matrices.load_split(home, matrices_digest, parts=()).train
    if MODELS[model].block_sizes(settings, matrix.shape[1]):
        return LOCAL.submit(load_or_fit, home, matrices_digest, model, settings, seed, None, executor)
    if home.store is not None and fits.find_fit(
        home, model, fits.compute_fit_key(matrices_digest, model, settings, seed)
    ):
        return LOCAL.submit(load_or_fit, home, matrices_digest, model, settings, seed)  # no worker need download it
    memory = MODELS[model].fit_bytes(settings, matrix.shape, matrix.nnz)
    label = f"{model}: train on {protocol}"
    return executor.submit(load_or_fit, home, matrices_digest, model, settings, seed, label=label, memory=memory)


def load_or_fit(
    home: Home,
    matrices_digest: str,
    model: str,
    settings: ModelSettings,
    seed: int,
    previous: Fit | None = None,
    workers: Executor = LOCAL,
) -> Fit:
    """A fit in the store: made now, or taken from there where one of that digest is whole.

    Args:
        previous: an earlier fit to begin at.
        workers: where the blocks of a fit by blocks are computed.

    Raises:
        OneclassError: the model cannot be fitted on this matrix, or a block of it has no room on any worker.
    """
    key = fits.compute_fit_key(matrices_digest, model, settings, seed)
    digest = fits.warm_fit_digest(key, previous)
    split = matrices.load_split(home, matrices_digest)
    what = f"{model} ({split.protocol})"
    fit = fits.find_fit(home, model, digest)
    if fit:
        logger.info("%s was fitted before on these edges with these settings, taken from the store", what)
    else:
        memory_errors.warn_pinned_blas()
        if settings.reads_negatives and split.negatives is None:
            logger.warning("%s: the log tells of nothing that users considered and did not like", what)
        estimator = MODELS[model](settings, seed=seed, threads=home.limits.threads)
        sizes = [f"{number:,}" for number in (*split.train.shape, split.train.nnz)]
        logger.info("%s: fitting %s users x %s items, %s edges", what, *sizes)
        with progress.report_progress(
            what, artifact_key=artifact_key(home.dataset, "train", model, split.protocol)
        ) as tell:
            options = FitOptions(
                start=warm_start.build_start(home, estimator, previous, split) if previous else None,
                validation=_load_validation_users(split),
                negatives=split.negatives,
                checkpoints=fits.checkpoint_folder(home, model, digest),
                on_epoch=_report_epochs(tell),
                member=partial(_load_component, home, matrices_digest, seed),
                workers=_with_block_memory(what, estimator, split.train, workers),
                rows=matrices.MatrixStoreRows(home.absolute(), matrices_digest),
                scratch=_scratch_store(home, workers),
            )
            with memory_errors.guard_model_memory(f"train: {what}", _estimate_memory(estimator, split.train, workers)):
                seconds, peak_bytes = _run_fit(estimator, split.train, options)
                if chosen := _derived_settings(estimator):
                    logger.info("%s: set from the log: %s", what, ", ".join(chosen))
                fit = fits.store_fit(
                    home,
                    estimator,
                    digest,
                    key=key,
                    matrices=matrices_digest,
                    seconds=seconds,
                    peak_bytes=peak_bytes,
                )
    took = f"{fit.seconds:.1f} s, peak memory {fit.peak_bytes / 1e6:.0f} MB, {fit.saved_bytes / 1e6:.1f} MB saved"
    logger.info("%s: fitted in %s", what, took)
    fits.upload_fit(home, fit)
    return fit


def _scratch_store(home: Home, workers: BlockExecutor) -> Path | ScratchFactory:
    """Scratch storage for the state of blocks: a local folder when running in-process."""
    if home.store is None or workers is LOCAL:
        return home.absolute().spill
    return partial(remote_scratch.open_scratch, home.absolute())


def _estimate_memory(estimator: Model, train: csr_matrix, workers: Executor) -> int:
    """Bytes that a fit in this process takes at least, about; its blocks are not among them where others compute these."""
    settings = estimator.settings
    sizes = estimator.block_sizes(settings, train.shape[1])
    if sizes and workers is not LOCAL:
        return estimate_coordinator_bytes(sizes, settings.blocks, train.shape, estimator.item_matrices)
    return estimator.fit_bytes(settings, train.shape, train.nnz)


def _with_block_memory(what: str, estimator: Model, train: csr_matrix, workers: Executor) -> BlockExecutor:
    """Workers whose calls declare what a block takes.

    Raises:
        OneclassError: no worker has declared so much.
    """
    settings = estimator.settings
    sizes = estimator.block_sizes(settings, train.shape[1])
    if not sizes:
        return workers
    most = workers.worker_memory
    needed = max(
        estimate_block_bytes(sizes, end - first, int(train.indptr[end] - train.indptr[first]))
        for first, end in partition_by_edges(train.indptr, settings.blocks)
    )
    if most is not None and needed > most:
        shared = estimate_block_bytes(sizes, 0, 0)
        remedy = f"take more blocks (--set {estimator.name}.blocks=N), or give a worker more memory"
        if shared > most:
            remedy = f"its items alone need {format_size(shared)} in each block: give a worker more memory"
        raise OneclassError(
            f"train: {what}: a block of users needs about {format_size(needed)}, and no worker has declared more than "
            f"{format_size(most)}; {remedy}."
        )
    return workers.with_memory(needed)


def is_model_error(error: BaseException) -> bool:
    """Whether an error that stopped a fit, or a ranking, is the model's own, so that the other models can go on.

    It is not where the arguments are wrong, a stored file is damaged, or the machine or the warehouse gives no more.
    """
    others = (
        InputError,
        ClusterUnavailable,
        SharedStoreUnavailable,
        ResourceExhausted,
        checksums.DamagedFile,
        OSError,
        duckdb.Error,
    )
    return isinstance(error, Exception) and not isinstance(error, others)


def _run_fit(estimator: Model, interactions: csr_matrix, options: FitOptions) -> tuple[float, int]:
    """Fit; the `seconds` and `peak_bytes` that it took."""
    memory_errors.reset_peak_rss()
    began = time.perf_counter()
    try:
        estimator.fit(interactions, options)
    except ValueError as error:
        raise OneclassError(f"train: {estimator.name} cannot be fitted: {error}") from error
    return time.perf_counter() - began, memory_errors.peak_rss()


def _derived_settings(estimator: Model) -> list[str]:
    """The settings that were left to the log, with their values."""
    given, resolved = estimator.settings.model_dump(), estimator.params.model_dump()
    return [f"{name} {value:.4g}" for name, value in resolved.items() if value is not None and given[name] is None]


def _load_validation_users(split: matrices.SplitMatrices) -> ValidationUsers | None:
    """Those of the split's validation part, where it has one."""
    part = split.parts.get("validation")
    return ValidationUsers(part.histories, part.targets) if part else None


def _load_component(home: Home, matrices_digest: str, seed: int, name: str, settings: ModelSettings) -> Model | None:
    """The fit in the store of a model that another one is made of."""
    fit = fits.find_fit(home, name, fits.compute_fit_key(matrices_digest, name, settings, seed))
    return fits.load_fit(home, name, fit.digest) if fit else None


def _report_epochs(tell: progress.ProgressCallback) -> Callable[[Epoch], None]:
    """What a model calls after every pass, told as progress."""

    def on_epoch(epoch: Epoch) -> None:
        watched = "".join(f", {name} {value:.6g}" for name, value in epoch.values.items())
        tell(epoch.number, epoch.of, f"epoch {epoch.number} of {epoch.of}{watched}, {epoch.seconds:.2f} s")

    return on_epoch


train_task = stage_task(train, "train {model} on {protocol}")
