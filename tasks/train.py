"""Train: fit one model on the training edges of every protocol and store the fits.

A stored fit is reused, so that an interrupted run continues where it stopped.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import duckdb
import polars as pl

from oneclass.models.base import Model
from oneclass.models.fit_options import Epoch, FitOptions, ValidationUsers
from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.cluster import LOCAL, Executor, PendingCall
from oneclass.tasks.errors import ClusterUnavailable, InputError, OneclassError, ResourceExhausted
from oneclass.tasks.orchestration import progress
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.protocols import is_fold
from oneclass.tasks.stores import checksums, fits, matrices, resources, stages, warehouse
from oneclass.tasks.stores.fits import Fit
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

FIT_COLUMNS = ("digest", "seconds", "peak_bytes", "saved_bytes")  # of `operations.model_fits`


@dataclass(frozen=True)
class FitPlan:
    """The fits of one model in a run.

    Attributes:
        settings: by the name of each split to fit on; a blend has weights of its own on each fold.
        digests: of the splits' matrices, by name.
        warm: whether to start at the fits of the latest run, if the model can.
    """

    model: str
    settings: Mapping[str, ModelSettings]
    digests: Mapping[str, str]
    seed: int
    warm: bool = False


def submit_fits(home: Home, plan: FitPlan, executor: Executor = LOCAL) -> dict[str, PendingCall]:
    """Submit the fits of a model and return the pending calls by split, for `collect_fits`.

    This process makes two kinds of fits when their result is requested: those by blocks, which submit their blocks, and
    those that start at an earlier fit, since only it reads the warehouse.
    """
    model, kind, pending = plan.model, MODELS[plan.model], dict[str, PendingCall]()
    for split, settings in plan.settings.items():
        digest = plan.digests[split]
        previous = fits.find_latest_fit(home, split, model) if plan.warm and kind.is_iterative else None
        cost = kind.estimate_cost(settings, LogSize.of(matrices.load_split(home, digest, parts=()).train))
        call = load_or_fit, home, digest, model, settings, plan.seed
        if previous or cost.coordinator_bytes:
            pending[split] = LOCAL.submit(*call, previous, executor)
        else:
            pending[split] = executor.submit(*call, label=f"{model}: train on {split}")
    return pending


def collect_fits(model: str, pending: Mapping[str, PendingCall]) -> dict[str, Fit]:
    """Wait for the fits of a model that `submit_fits` submitted, by split.

    Raises:
        OneclassError: the model cannot be fitted on a matrix.
    """
    found: dict[str, Fit] = {split: call.result() for split, call in pending.items()}
    logger.info("%s: fits on %s", model, ", ".join(f"{split} ({fit.seconds:.1f} s)" for split, fit in found.items()))
    return found


def record_fits(home: Home, run_id: str, fitted: Mapping[str, Mapping[str, Fit]]) -> None:
    """Write the fits of a run, by split and model, to `operations.model_fits`, under the contract of the stage."""
    rows = [
        (run_id, split, model, *(getattr(fit, name) for name in FIT_COLUMNS))
        for split, fits_of_split in fitted.items()
        for model, fit in fits_of_split.items()
    ]
    if not rows:
        return
    frame = pl.DataFrame(rows, ["run_id", "protocol", "model", *FIT_COLUMNS], orient="row", infer_schema_length=None)
    with stages.run_stage(home, run_id, "train") as connection:
        replaced = "delete from operations.model_fits where run_id = ? and list_contains(?, protocol || '/' || model)"
        connection.execute(replaced, [run_id, [f"{split}/{model}" for _, split, model, *_ in rows]])
        warehouse.insert(connection, "operations.model_fits", frame)


def load_or_fit(
    home: Home,
    matrices_digest: str,
    model: str,
    settings: ModelSettings,
    seed: int,
    previous: Fit | None = None,
    workers: Executor = LOCAL,
) -> Fit:
    """Return the stored fit of these inputs, fitting the model if there is none.

    Args:
        previous: an earlier fit to start at.
        workers: the executor of a fit by blocks.

    Raises:
        OneclassError: the model cannot be fitted on this matrix.
    """
    key = fits.compute_fit_key(matrices_digest, model, settings, seed)
    digest = fits.warm_fit_digest(key, previous)
    if fit := fits.find_fit(home, model, digest):
        logger.info("%s: fitted before on these edges with these settings, taken from the store: %s", model, digest)
        return fit
    split = matrices.load_split(home, matrices_digest)
    what = f"{model} ({split.protocol})"
    if settings.reads_explicit_negatives and split.explicit_negatives is None:
        logger.warning("%s: the log tells of nothing that users considered and did not like", what)
    estimator = MODELS[model](settings, seed=seed, threads=home.limits.threads)
    sizes = [f"{number:,}" for number in (*split.train.shape, split.train.nnz)]
    logger.info("%s: fitting %s users x %s items, %s edges", what, *sizes)

    def load_component(name: str, component: ModelSettings) -> Model | None:
        """Load the stored fit of a component of a blend, if there is one."""
        stored = fits.find_fit(home, name, fits.compute_fit_key(matrices_digest, name, component, seed))
        return fits.load_fit(home, name, stored.digest) if stored else None

    cost = estimator.estimate_cost(settings, LogSize.of(split.train))
    # Workers compute the blocks of a fit by blocks.
    needed = cost.bytes if workers is LOCAL else cost.coordinator_bytes or cost.bytes
    with progress.report_progress(what) as report, resources.guard_model_memory(f"train: {what}", needed):

        def report_epoch(epoch: Epoch) -> None:
            values = "".join(f", {name} {value:.6g}" for name, value in epoch.values.items())
            report(epoch.number, epoch.of, f"epoch {epoch.number} of {epoch.of}{values}, {epoch.seconds:.2f} s")

        options = FitOptions(
            start=fits.build_start(home, estimator, previous, split) if previous else None,
            validation=find_validation_users(split),
            explicit_negatives=split.explicit_negatives,
            item_features=split.item_features,
            on_epoch=report_epoch,
            load_component=load_component,
            workers=workers,
            rows=partial(matrices.load_rows, home.absolute(), matrices_digest),
            scratch=home.absolute().spill,
        )
        resources.reset_peak_rss()
        started = time.perf_counter()
        try:
            estimator.fit(split.histories, options)
        except ValueError as error:
            raise OneclassError(f"train: {model} cannot be fitted: {error}") from error
        seconds, peak_bytes = time.perf_counter() - started, resources.peak_rss()
        fit = fits.store_fit(
            home, estimator, digest, key=key, matrices=matrices_digest, seconds=seconds, peak_bytes=peak_bytes
        )
    used = f"{seconds:.1f} s, peak memory {peak_bytes / 1e6:.0f} MB, {fit.saved_bytes / 1e6:.1f} MB saved"
    logger.info("%s: fitted in %s", what, used)
    return fit


def is_model_error(error: BaseException) -> bool:
    """Whether an error of a fit or a ranking concerns only that model, so that the other models can continue.

    Wrong arguments, damaged files, exhausted resources and errors of the warehouse or the cluster concern all.
    """
    concerns_all = (InputError, ClusterUnavailable, ResourceExhausted, checksums.DamagedFile, OSError, duckdb.Error)
    return isinstance(error, Exception) and not isinstance(error, concerns_all)


def find_validation_users(split: matrices.SplitMatrices) -> ValidationUsers | None:
    """Return the users of the split's validation part, but no training users, and no fold's, who are in the table."""
    part = None if is_fold(split.protocol) else split.parts.get("validation")
    return ValidationUsers(part.histories, part.targets) if part and part.rows is None else None


train_task = stage_task(collect_fits, "train-{model}", stage="train")
