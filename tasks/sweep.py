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
from models.settings import ModelSettings
from tasks.errors import InputError
from tasks.evaluate.stage import rank
from tasks.orchestration.stage_task import stage_task
from tasks.stores import fits, matrices, warehouse
from tasks.stores.home import Home
from tasks.stores.matrices import Part
from tasks.train import fitted

logger = logging.getLogger(__name__)

ROWS_TO_COMPILE = 64  # users of a first fit, thrown away, so that no refit's time includes compiling the kernels


@dataclass(frozen=True)
class SweepPlan:
    """A model, the protocol that judges it, and for each refit the settings that replace the model's own."""

    model: str
    protocol: str
    settings: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Result:
    """One value of one refit: over all users, or over those whose training degree lies in a bin.

    Attributes:
        settings: those that the sweep varies, as JSON; `operations.runs` has the others.
    """

    settings: str
    score: str
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
    # Section 6 of Paquet and Koenigstein (2013); a power of the histogram, gamma, would overrule r.
    "random_graph_r": SweepPlan("random_graph", "leave_one_out", _grid(r=(0.5, 1.0), gamma=(None,))),
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
    return " ".join([sweep.model, *(f"{key}={value:g}" for key, value in _varied(sweep, place).items())])


def _varied(sweep: SweepPlan, place: int) -> dict[str, Any]:
    return {key: value for key, value in sweep.settings[place].items() if value is not None}


def refit(
    home: Home, run_id: str, *, name: str, place: int, matrices_digest: str, settings: ModelSettings, seed: int
) -> list[Result]:
    """Make one fit of a sweep, or take it from the store, and judge it on the test part.

    Args:
        name: of the sweep.
        place: which of its refits, from 0.

    Raises:
        OneclassError: the model cannot be fitted on this matrix.
    """
    sweep = SWEEPS[name]
    split = matrices.read(home, matrices_digest)
    if place == 0:
        _compile(sweep.model, settings, split.train, home.limits.threads)
    fit = fitted(home, matrices_digest=matrices_digest, model=sweep.model, settings=settings, seed=seed)
    model = fits.load(home, fit.model, fit.digest)
    described = json.dumps(_varied(sweep, place), sort_keys=True)
    results = []
    for score in model.score_names:
        of_users, edge_ranks = rank(model, score, split.parts["test"])
        means = metrics.over_users(of_users)
        found = [(None, None, metric, mean) for metric, mean in means.items()]
        if sweep.protocol == "leave_one_out":
            found += _by_user_degree(split.parts["test"], edge_ranks)
        results += [
            Result(described, score, low, high, metric, mean.value, mean.standard_error, mean.users, fit.seconds)
            for low, high, metric, mean in found
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


def _by_user_degree(part: Part, edge_ranks: np.ndarray) -> list[tuple[int, int, str, Mean]]:
    """The mean rank of the edges in each bin of the users' training degrees; each user has one edge."""
    degrees = np.repeat(np.diff(part.histories.indptr), np.diff(part.targets.indptr))
    return [
        (cell.low, cell.high, "mean_rank", Mean(cell.mean, None, cell.edges))
        for cell in metrics.by_degree(edge_ranks, degrees)
    ]


refit_task = stage_task(refit, "refit {name} {place}")
