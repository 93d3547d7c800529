"""Sweeps: one model fitted many times, with one or two of its settings varied, for the figures that show their effect.

Each refit is kept in the model store like any other fit, until a later run tidies the store, so a sweep that was cut
off goes on where it stopped. The scores of the refits are kept in `evaluation.sweeps`.
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

from models import catalogue
from models.evaluation import metrics
from models.evaluation.metrics import Mean
from models.numerics.counts import item_degrees
from models.settings import ModelSettings
from tasks.cluster import Executor, PendingCall
from tasks.errors import InputError
from tasks.evaluate.ranks import by_degree, degrees_of_edges, rank_each
from tasks.orchestration.stage_task import stage_task
from tasks.stores import fits, matrices, warehouse
from tasks.stores.home import Home
from tasks.stores.matrices import SplitMatrices
from tasks.train import fitted

logger = logging.getLogger(__name__)

ROWS_TO_COMPILE = 64  # users of a first fit, thrown away, so that no refit's time includes compiling its kernels


@dataclass(frozen=True)
class SweepPlan:
    """A model, the protocol that judges it, and for each refit the settings that replace the model's own.

    Attributes:
        by_pass: an attribute of the fitted model with one number a pass, to be kept too.
    """

    model: str
    protocol: str
    settings: tuple[dict[str, Any], ...]
    by_pass: str | None = None


@dataclass(frozen=True)
class Result:
    """One value of one refit: over all users, or over the held-out edges whose user, or item, has a training degree in
    a bin.

    Attributes:
        settings: those that the sweep varies, as JSON; `operations.runs` has the others.
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


def _grid(**values: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Every combination, the last setting varying fastest."""
    return tuple(dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))


SWEEPS = {
    # Figure 3 of Paquet, Koenigstein and Winther (2014): mean rank as r in D' = rD varies.
    "paired_symbols_r": SweepPlan("paired_symbols", "leave_one_out", _grid(r=(0.25, 0.5, 1.0, 2.0, 4.0, 8.0))),
    # Its section 5: a slight benefit of K = 30, 40 and 50 over K = 20.
    "paired_symbols_factors": SweepPlan("paired_symbols", "leave_one_out", _grid(factors=(20, 30, 40, 50))),
    # Figures 6 and 7 of Paquet and Koenigstein (2013); a power of the histogram, gamma, would overrule r.
    "random_graph_r": SweepPlan("random_graph", "leave_one_out", _grid(r=(0.5, 1.0), gamma=(None,))),
    # Boxes 9 and 10 of the poster of Hernandez-Lobato, Houlsby and Ghahramani: how entries are drawn, with the size S of
    # a minibatch by box 8; then S held at a value.
    "binary_matrix_minibatch": SweepPlan(
        "binary_matrix",
        "leave_one_out",
        _grid(sampling=("uniform", "balanced", "biased"))
        + tuple({"least_batch": size, "most_batch": size} for size in (1_000, 10_000, 100_000)),
        by_pass="minibatches",
    ),
    # Table 2 of Steck (2019): accuracy against training time.
    "mrf_sparse_density": SweepPlan(
        "mrf_sparse", "strong_generalization", _grid(density=(0.001, 0.005, 0.02, 0.1), r=(0.0, 0.1, 0.5))
    ),
}


def settings_of(sweep: SweepPlan, own: ModelSettings) -> list[ModelSettings]:
    """The settings of each refit: those of the data set, with the changes of the sweep."""
    kind = catalogue.MODELS[sweep.model].Settings
    return [kind(**{**own.model_dump(exclude_unset=True), **varied}) for varied in sweep.settings]


def label(name: str, place: int) -> str:
    """A refit in words, such as `paired_symbols r=0.25`."""
    sweep = SWEEPS[name]
    varied = _varied(sweep, place).items()
    return " ".join(
        [sweep.model, *(f"{key}={value if isinstance(value, str) else f'{value:g}'}" for key, value in varied)]
    )


def _varied(sweep: SweepPlan, place: int) -> dict[str, Any]:
    return {key: value for key, value in sweep.settings[place].items() if value is not None}


def refit(home: Home, run_id: str, *, name: str, place: int, pending: PendingCall) -> list[Result]:
    """One fit of a sweep, judged on the test part, submitted by `submit_refit`.

    Args:
        name: of the sweep.
        place: which of its refits, from 0.

    Raises:
        OneclassError: the model cannot be fitted on this matrix.
    """
    return pending.result()


def submit_refit(
    executor: Executor, home: Home, *, name: str, place: int, matrices_digest: str, settings: ModelSettings, seed: int
) -> PendingCall:
    """Submit a refit, whose result is a list of `Result`."""
    call = f"{label(name, place)}: refit"
    return executor.submit(_refit, home, name, place, matrices_digest, settings, seed, label=call)


def _refit(home: Home, name: str, place: int, matrices_digest: str, settings: ModelSettings, seed: int) -> list[Result]:
    """Make the fit, or take it from the store, and judge it."""
    sweep = SWEEPS[name]
    split = matrices.read(home, matrices_digest)
    _compile(sweep.model, settings, split.train, home.limits.threads)
    fit = fitted(home, matrices_digest=matrices_digest, model=sweep.model, settings=settings, seed=seed)
    model = fits.load(home, fit.model, fit.digest)
    described = json.dumps(_varied(sweep, place), sort_keys=True)
    results = []
    for score, ranks in rank_each(model, split.parts["test"]).items():
        means = metrics.over_users(ranks.of_users)
        found = [(None, None, None, metric, mean) for metric, mean in means.items()]
        if sweep.by_pass:
            found += _by_pass(sweep.by_pass, getattr(model, sweep.by_pass), users=split.train.shape[0])
        if sweep.protocol == "leave_one_out":
            found += _in_bins(split, ranks.of_edges)
        results += [
            Result(described, score, *where, metric, mean.value, mean.standard_error, mean.users, fit.seconds)
            for *where, metric, mean in found
        ]
        logger.info(
            "%s, %s: mean rank %.4f, nDCG@100 %.4f",
            label(name, place),
            score,
            means["mean_rank"].value,
            means["ndcg@100"].value,
        )
    return results


def record(home: Home, run_id: str, name: str, results: Sequence[Result]) -> None:
    """Replace the results that the sweep left the last time it ran, all of them or none."""
    sweep, swept_at = SWEEPS[name], datetime.now(UTC).replace(tzinfo=None)
    rows = [
        {"sweep": name, "swept_at": swept_at, "protocol": sweep.protocol, "model": sweep.model, **vars(result)}
        for result in results
    ]
    with warehouse.stage(home, run_id, "evaluate", {"protocol": sweep.protocol}) as connection:
        connection.execute("delete from evaluation.sweeps where sweep = ?", [name])
        warehouse.insert(connection, "evaluation.sweeps", pl.DataFrame(rows, infer_schema_length=None))
    logger.info("%s: %d results of %d refits kept in evaluation.sweeps", name, len(rows), len(sweep.settings))


def check_names(names: Sequence[str]) -> list[str]:
    """The names of the sweeps to run: the given ones, or if none is given, every sweep whose model is installed.

    Raises:
        InputError: a name is unknown.
    """
    known = [name for name, sweep in SWEEPS.items() if sweep.model in catalogue.MODELS]
    for name in names:
        if name not in known:
            raise InputError(f"--sweep {name}: unknown. Known: {', '.join(known)}.")
    return list(names) or known


def _compile(model: str, settings: ModelSettings, train: csr_matrix, threads: int) -> None:
    try:
        catalogue.MODELS[model](settings, threads=threads).fit(train[:ROWS_TO_COMPILE])
    except ValueError as error:
        logger.info(
            "%s cannot be fitted on a few users first (%s); the time of its first refit may include compiling its kernels",
            model,
            error,
        )


Found = tuple[str | None, int | None, int | None, str, Mean]  # side, degree_low, degree_high, metric, mean


def _by_pass(name: str, numbers: np.ndarray, users: int) -> list[Found]:
    """`<name>@<pass>`, from pass 1."""
    return [(None, None, None, f"{name}@{at}", Mean(float(one), None, users)) for at, one in enumerate(numbers, 1)]


def _in_bins(split: SplitMatrices, edge_ranks: np.ndarray) -> list[Found]:
    """The mean rank of the edges in each bin of their users' training degrees, and of their items', and percentiles."""
    found: list[Found] = []
    part, degrees = split.parts["test"], item_degrees(split.train)
    sides = degrees_of_edges(np.diff(part.histories.indptr), degrees, part.targets)
    for side, cell in by_degree(edge_ranks, sides):
        values = {"mean_rank": cell.mean, **dict(zip(metrics.PERCENTILES, cell.percentiles, strict=True))}
        found += [(side, cell.low, cell.high, name, Mean(value, None, cell.edges)) for name, value in values.items()]
    return found


refit_task = stage_task(refit, "refit {name} {place}")
