"""Fits of our models and of other libraries', and their scores of the test users, on the arrays of the split."""

import importlib
import importlib.util
from typing import Any

import numpy as np

from benchmarks.accuracy.competitors import LIBRARIES, evaluate_users, fit_library
from benchmarks.scale.workloads import limits
from benchmarks.scale.workloads.limits import Rates
from benchmarks.scale.workloads.processes import Measurement, record_resources
from benchmarks.scale.workloads.stages import PROTOCOL, RUN
from benchmarks.speed.logs import draw_equal_users
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import resolve_settings
from oneclass.models.base import Model
from oneclass.models.fit_options import FitOptions, ValidationUsers
from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.tasks import memory_errors
from oneclass.tasks.evaluate.ranking import rank_targets_by_score
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.stores.matrices import Part
from oneclass.tasks.train import train

COMPILE_USERS = 10


def measure_model(parameters: BackfillParameters, name: str, digest: str, rates: Rates) -> list[Measurement]:
    """Measure a fit, which is stored as a run stores it, and ranking for the test users; kernels are compiled before.

    Args:
        digest: of the split.
    """
    run = resolve_settings(parameters)
    home, settings, kind = run.home, run.models[name], MODELS[name]
    split = matrices.load_split(home, digest)
    small = draw_equal_users(200, 60, 10)
    kind(settings, threads=home.limits.threads).fit(small).scores(small[:COMPILE_USERS])
    passes = []
    users = split.parts.get("validation")
    validation = ValidationUsers(users.histories, users.targets) if users else None
    options = FitOptions(on_epoch=passes.append, validation=validation, explicit_negatives=split.explicit_negatives)
    model = kind(settings, seed=run.seed, threads=home.limits.threads)
    needed = kind.fit_bytes(settings, LogSize.of(split.train))
    fit, ranking = Measurement(f"{name}: fit"), Measurement(f"{name}: scores and ranks")
    with memory_errors.guard_model_memory(name, needed), record_resources(fit):
        model.fit(split.train, options)
    key = fits.compute_fit_key(digest, name, settings, run.seed)
    fits.store_fit(home, model, key, key=key, matrices=digest, seconds=fit.wall, peak_bytes=fit.peak_bytes)
    # Finds the stored fit and records it for the run.
    train(home, RUN, protocol=PROTOCOL, matrices_digest=digest, model=name, settings=settings, seed=run.seed)
    fit.result = {"fits": {name: key}}
    fit.limit, fit.limit_cpu = limits.bound_fit(model, split.train, len(passes), rates)
    model = fits.load_fit(home, name, key)  # as evaluation does: a loaded model caches what all blocks need
    part = split.parts["test"]
    fit.ndcg = _measure_ranking(ranking, model, part, _choose_score(model, users))
    ranking.limit, ranking.limit_cpu = limits.bound_scores(model, part.targets.shape[0], split.train.shape[1], rates)
    return [fit, ranking]


def _choose_score(model: Model, validation: Part | None) -> str:
    """Choose the score of a model that ranks best for the validation users."""
    if len(model.score_names) == 1 or validation is None or not validation.targets.nnz:
        return model.score_names[0]
    ranks = rank_targets_by_score(model, validation, on_progress=False)
    return max(ranks, key=lambda score: ranks[score].of_users["ndcg@100"].mean())


def _measure_ranking(measurement: Measurement, model: Any, part: Part, score: str = "score") -> float | None:
    """Measure scores and ranks of a part after a few users that compile, and return nDCG@100."""
    if not part.targets.nnz:
        measurement.error = "no test user has a held-out edge"
        return None
    few = np.flatnonzero(np.diff(part.targets.indptr))[:COMPILE_USERS]
    evaluate_users(model, Part(part.histories[few], part.targets[few], part.users[few]), score)
    with record_resources(measurement):
        of_users = evaluate_users(model, part, score)
    measurement.ndcg = float(of_users["ndcg@100"].mean())
    return measurement.ndcg


def list_library_models(library: str) -> list[str]:
    """List the keys of LIBRARIES of one library."""
    return [name for name in LIBRARIES if name.split("_")[0] == library]


def is_installed(library: str) -> bool:
    """Tell whether this interpreter has a library."""
    return importlib.util.find_spec(library) is not None


def measure_library(parameters: BackfillParameters, name: str, digest: str) -> list[Measurement]:
    """Measure a library's fit and ranking for the test users, with its settings in LIBRARIES."""
    run = resolve_settings(parameters)
    split = matrices.load_split(run.home, digest)
    fit, ranking = Measurement(f"{name}: fit"), Measurement(f"{name}: scores and ranks")
    importlib.import_module(name.split("_")[0])
    with record_resources(fit):
        model = fit_library(name, LIBRARIES[name].settings, split.train, run.home.limits.threads, run.seed)
    fit.ndcg = _measure_ranking(ranking, model, split.parts["test"])
    return [fit, ranking]
