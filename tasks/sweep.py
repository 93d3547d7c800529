"""Sweeps: fit one model many times with one or two settings varied, for figures of their effect.

Each refit is stored like any other fit until a later run collects garbage, so an interrupted sweep continues where it
stopped. The scores of the refits are in `evaluation.sweeps`.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models import registry
from oneclass.models.base import Model
from oneclass.models.evaluation import metrics
from oneclass.models.evaluation.calibration import HISTOGRAM_BINS, bin_likes_by_degree
from oneclass.models.evaluation.metrics import Mean
from oneclass.models.numerics.validation import count_item_degrees
from oneclass.models.settings import ModelSettings
from oneclass.tasks.cluster import Executor, PendingCall
from oneclass.tasks.errors import InputError
from oneclass.tasks.evaluate.calibration import sample_likes
from oneclass.tasks.evaluate.ranking import group_ranks_by_degree, rank_targets_by_score, target_degrees
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.stores import fits, matrices, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.train import load_or_fit

logger = logging.getLogger(__name__)

COMPILE_ROWS = 64  # users of a first fit, which is discarded, so that no refit's time includes compiling kernels


@dataclass(frozen=True)
class SweepPlan:
    """A model, the protocol of its evaluation, and for each refit the settings that replace the model's own.

    Attributes:
        each_epoch: an attribute of the fitted model with one number per pass, to be stored too.
        like_shares: whether the distribution of `like` of held-out edges is stored too, by user degree.
    """

    model: str
    protocol: str
    settings: tuple[dict[str, Any], ...]
    each_epoch: str | None = None
    like_shares: bool = False


@dataclass(frozen=True)
class SweepResult:
    """One value of one refit: over all users, or over the held-out edges in a bin of their users' or items' degrees.

    Attributes:
        settings: the varied settings, as JSON; `operations.runs` has the others.
    """

    settings: str
    score: str
    side: str | None
    degree_low: int | None
    degree_high: int | None
    metric: str
    value: float
    standard_error: float | None
    users: int
    seconds: float


def _expand_grid(**values: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Return every combination, the last setting varying fastest."""
    return tuple(dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))


SWEEPS = {
    # Figures 3 and 4 of Paquet, Koenigstein and Winther (2014): mean rank, and the density of `like`, as r in D' = rD
    # varies; like_r would state `like` against one r.
    "paired_symbols_r": SweepPlan(
        "paired_symbols",
        "leave_one_out",
        _expand_grid(r=(0.25, 0.5, 1.0, 2.0, 4.0, 8.0), like_r=(None,)),
        like_shares=True,
    ),
    # Its section 5: a slight benefit of K = 30, 40 and 50 over K = 20.
    "paired_symbols_factors": SweepPlan("paired_symbols", "leave_one_out", _expand_grid(factors=(20, 30, 40, 50))),
    # Figures 6 and 7 of Paquet and Koenigstein (2013); a power of the histogram, gamma, would overrule r.
    "random_graph_r": SweepPlan("random_graph", "leave_one_out", _expand_grid(r=(0.5, 1.0), gamma=(None,))),
    # Boxes 9 and 10 of the poster of Hernandez-Lobato, Houlsby and Ghahramani: how entries are drawn, with the size S
    # of a minibatch by box 8; then S held at a value.
    "binary_matrix_minibatch": SweepPlan(
        "binary_matrix",
        "leave_one_out",
        _expand_grid(sampling=("uniform", "balanced", "biased"))
        + tuple({"least_batch": size, "most_batch": size} for size in (1_000, 10_000, 100_000)),
        each_epoch="minibatches",
    ),
    # Table 2 of Steck (2019): accuracy against training time.
    "mrf_sparse_density": SweepPlan(
        "mrf_sparse", "strong_generalization", _expand_grid(density=(0.001, 0.005, 0.02, 0.1), r=(0.0, 0.1, 0.5))
    ),
}


def refit_settings(sweep: SweepPlan, own: ModelSettings) -> list[ModelSettings]:
    """Return the settings of each refit: those of the data set, with the changes of the sweep."""
    kind = registry.MODELS[sweep.model].Settings
    return [kind(**{**own.model_dump(exclude_unset=True), **varied}) for varied in sweep.settings]


def refit_label(name: str, index: int) -> str:
    """Describe a refit, such as `paired_symbols r=0.25`."""
    sweep = SWEEPS[name]
    varied = _changed_settings(sweep, index).items()
    return " ".join(
        [sweep.model, *(f"{key}={value if isinstance(value, str) else f'{value:g}'}" for key, value in varied)]
    )


def _changed_settings(sweep: SweepPlan, index: int) -> dict[str, Any]:
    return {key: value for key, value in sweep.settings[index].items() if value is not None}


def refit(home: Home, run_id: str, *, name: str, place: int, pending: PendingCall) -> list[SweepResult]:
    """Wait for one refit of a sweep, submitted by `submit_refit`, and return its results on the test part.

    Args:
        name: of the sweep.
        place: number of the refit, from 0.

    Raises:
        OneclassError: the model cannot be fitted on this matrix.
    """
    return pending.result()


def submit_refit(
    executor: Executor, home: Home, *, name: str, place: int, matrices_digest: str, settings: ModelSettings, seed: int
) -> PendingCall:
    """Submit a refit, whose result is a list of `SweepResult`."""
    call = f"{refit_label(name, place)}: refit"
    return executor.submit(_fit_and_evaluate, home, name, place, matrices_digest, settings, seed, label=call)


def _fit_and_evaluate(
    home: Home, name: str, place: int, matrices_digest: str, settings: ModelSettings, seed: int
) -> list[SweepResult]:
    """Fit the model, or load the stored fit, and evaluate it."""
    sweep = SWEEPS[name]
    split = matrices.load_split(home, matrices_digest)
    _compile_kernels(sweep.model, settings, split.train, home.limits.threads)
    fit = load_or_fit(home, matrices_digest=matrices_digest, model=sweep.model, settings=settings, seed=seed)
    model = fits.load_fit(home, fit.model, fit.digest)
    described = json.dumps(_changed_settings(sweep, place), sort_keys=True)
    results = []
    for score, ranks in rank_targets_by_score(model, split.parts["test"]).items():
        means = metrics.average_over_users(ranks.of_users)
        rows = [(None, None, None, metric, mean) for metric, mean in means.items()]
        if sweep.each_epoch:
            rows += _evaluate_each_epoch(sweep.each_epoch, getattr(model, sweep.each_epoch), users=split.train.shape[0])
        if sweep.protocol == "leave_one_out":
            rows += _mean_rank_by_degree(split, ranks.edge_ranks)
        if sweep.like_shares and score == "like":
            rows += _like_shares_by_degree(model, split)
        results += [
            SweepResult(
                described, score, side, low, high, metric, mean.value, mean.standard_error, mean.users, fit.seconds
            )
            for side, low, high, metric, mean in rows
        ]
        logger.info(
            "%s, %s: mean rank %.4f, nDCG@100 %.4f",
            refit_label(name, place),
            score,
            means["mean_rank"].value,
            means["ndcg@100"].value,
        )
    return results


def record_sweep(home: Home, run_id: str, name: str, results: Sequence[SweepResult]) -> None:
    """Replace the results of the sweep's previous run, in one transaction."""
    sweep, swept_at = SWEEPS[name], datetime.now(UTC).replace(tzinfo=None)
    rows = [
        {"sweep": name, "swept_at": swept_at, "protocol": sweep.protocol, "model": sweep.model, **vars(result)}
        for result in results
    ]
    with warehouse.run_stage(home, run_id, "evaluate", {"protocol": sweep.protocol}) as connection:
        connection.execute("delete from evaluation.sweeps where sweep = ?", [name])
        warehouse.insert(connection, "evaluation.sweeps", pl.DataFrame(rows, infer_schema_length=None))
    logger.info("%s: %d results of %d refits kept in evaluation.sweeps", name, len(rows), len(sweep.settings))


def check_sweep_names(names: Sequence[str]) -> list[str]:
    """Return the names of the sweeps to run: the given ones, or by default every sweep whose model is installed.

    Raises:
        InputError: a name is unknown.
    """
    known = [name for name, sweep in SWEEPS.items() if sweep.model in registry.MODELS]
    for name in names:
        if name not in known:
            raise InputError(f"--sweep {name}: unknown. Known: {', '.join(known)}.")
    return list(names) or known


def _compile_kernels(model: str, settings: ModelSettings, train: csr_matrix, threads: int) -> None:
    try:
        registry.MODELS[model](settings, threads=threads).fit(train[:COMPILE_ROWS])
    except ValueError as error:
        logger.info(
            "%s cannot be fitted on a few users first (%s); the time of its first refit may include compiling its "
            "kernels",
            model,
            error,
        )


MetricRow = tuple[str | None, int | None, int | None, str, Mean]  # side, degree_low, degree_high, metric, mean


def _evaluate_each_epoch(name: str, numbers: np.ndarray, users: int) -> list[MetricRow]:
    """Return the values as metrics `<name>@<pass>`, from pass 1."""
    return [
        (None, None, None, f"{name}@{epoch}", Mean(float(value), None, users)) for epoch, value in enumerate(numbers, 1)
    ]


def _mean_rank_by_degree(split: SplitMatrices, edge_ranks: np.ndarray) -> list[MetricRow]:
    """Return mean and percentiles of the edges' ranks in each bin of their users' and of their items' degrees."""
    rows: list[MetricRow] = []
    part, degrees = split.parts["test"], count_item_degrees(split.train)
    sides = target_degrees(np.diff(part.histories.indptr), degrees, part.targets)
    for side, cell in group_ranks_by_degree(edge_ranks, sides):
        values = {"mean_rank": cell.mean, **dict(zip(metrics.PERCENTILES, cell.percentiles, strict=True))}
        rows += [(side, cell.low, cell.high, name, Mean(value, None, cell.edges)) for name, value in values.items()]
    return rows


def _like_shares_by_degree(model: Model, split: SplitMatrices) -> list[MetricRow]:
    """Return the share of held-out edges in each bin of `like`, by user degree, as metrics `like_share@<lower end>`."""
    part = split.parts["test"]
    sample = sample_likes(model, None, split.train, part, None, np.zeros(len(part.users), dtype=bool))
    if sample is None:
        return []
    return [
        (
            "user",
            bin_.low,
            bin_.high,
            f"like_share@{place / HISTOGRAM_BINS:.2f}",
            Mean(count / bin_.edges, None, bin_.edges),
        )
        for bin_ in bin_likes_by_degree(sample.like[:, 0], sample.degrees)
        for place, count in enumerate(bin_.histogram)
        if count
    ]


refit_task = stage_task(refit, "refit {name} {place}")
