"""A model's fit and its scores of the test users, ours and other libraries', on the arrays that the split made."""

import importlib
import importlib.util
from typing import Any

import numpy as np

from benchmarks.accuracy.competitors import LIBRARIES, evaluate_users, library_fit
from benchmarks.scale.workloads import limits
from benchmarks.scale.workloads.apart import Took, clock
from benchmarks.scale.workloads.limits import Rates
from benchmarks.scale.workloads.stages import PROTOCOL, RUN
from benchmarks.speed.mrf_dense import long_tailed
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


def ours(given: BackfillParameters, name: str, digest: str, rates: Rates) -> list[Took]:
    """The fit, kept as a run keeps it, and the test users' scores and ranks by it; kernels are compiled before the
    clock.
    """
    run = resolve_settings(given)
    home, settings, kind = run.home, run.models[name], MODELS[name]
    split = matrices.load_split(home, digest)
    small = long_tailed(200, 60, 10)
    kind(settings, threads=home.limits.threads).fit(small).scores(small[:10])
    passes = []
    parts = split.parts.get("validation")
    validation = ValidationUsers(parts.histories, parts.targets) if parts else None
    options = FitOptions(on_epoch=passes.append, validation=validation, explicit_negatives=split.explicit_negatives)
    model = kind(settings, seed=run.seed, threads=home.limits.threads)
    needed = kind.fit_bytes(settings, LogSize.of(split.train))
    fit, scores = Took(f"{name}: fit"), Took(f"{name}: scores and ranks")
    with memory_errors.guard_model_memory(name, needed), clock(fit):
        model.fit(split.train, options)
    key = fits.compute_fit_key(digest, name, settings, run.seed)
    fits.store_fit(home, model, key, key=key, matrices=digest, seconds=fit.seconds, peak_bytes=fit.peak)
    train(home, RUN, protocol=PROTOCOL, matrices_digest=digest, model=name, settings=settings, seed=run.seed)  # noted
    fit.found = {"fits": {name: key}}
    fit.limit, fit.limit_cpu = limits.of_fit(model, split.train, len(passes), rates)
    model = fits.load_fit(home, name, key)  # as a run judges: what all blocks of scores need of the items is made once
    part = split.parts["test"]
    score = _best_score(model, parts)
    fit.ndcg = _ranked(scores, model, part, score)
    scores.limit, scores.limit_cpu = limits.of_scores(model, part.targets.shape[0], split.train.shape[1], rates)
    return [fit, scores]


def _best_score(model: Model, validation: Part | None) -> str:
    """Of a model with several scores, the one that is best on the validation users."""
    if len(model.score_names) == 1 or validation is None or not validation.targets.nnz:
        return model.score_names[0]
    found = rank_targets_by_score(model, validation, on_progress=False)
    return max(found, key=lambda score: found[score].of_users["ndcg@100"].mean())


def _ranked(took: Took, model: Any, part: Part, score: str = "score") -> float | None:
    """nDCG@100 of a part, noted with what its scores and ranks take; some users come first, that kernels are
    compiled.
    """
    if not part.targets.nnz:
        took.why = "no test user has anything to be found"
        return None
    few = np.flatnonzero(np.diff(part.targets.indptr))[:10]
    evaluate_users(model, Part(part.histories[few], part.targets[few], part.users[few]), score)
    with clock(took):
        of_users = evaluate_users(model, part, score)
    took.ndcg = float(of_users["ndcg@100"].mean())
    return took.ndcg


def names_of(library: str) -> list[str]:
    """The keys of LIBRARIES that are of one library."""
    return [name for name in LIBRARIES if name.split("_")[0] == library]


def installed(library: str) -> bool:
    """Whether this interpreter has the library."""
    return importlib.util.find_spec(library) is not None


def beside(given: BackfillParameters, name: str, digest: str) -> list[Took]:
    """A library's fit and the test users' scores and ranks by it, with the settings that were tuned on ml-1m."""
    run = resolve_settings(given)
    threads = run.home.limits.threads
    split = matrices.load_split(run.home, digest)
    fit, scores = Took(f"{name}: fit"), Took(f"{name}: scores and ranks")
    importlib.import_module(name.split("_")[0])
    with clock(fit):
        fitted = library_fit(name, LIBRARIES[name].settings, split.train, threads, run.seed)
    fit.ndcg = _ranked(scores, fitted, split.parts["test"])
    return [fit, scores]
