"""Blend: which of a run's models are best together, and with which weights, by validation users alone.

On strong_generalization these are users that no model has seen, and the components are the run's own fits. `given` and
`next_events` test on training users, so there the models are fitted once more, on what is left of the training edges when
a part is cut from them to weigh on (`tasks.tuning.search`).
"""

import logging
from collections.abc import Iterator, Mapping
from datetime import date

import numpy as np
from prefect import task
from prefect.cache_policies import NO_CACHE
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.blend import BlendSettings, Candidates, Component, WeightSearchResult, search_weights
from oneclass.models.blend.score_normalization import normalize_scores
from oneclass.models.evaluation import metrics
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks import memory_errors
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part
from oneclass.tasks.train import is_model_error
from oneclass.tasks.tuning.auto import ChosenSettings, record_settings
from oneclass.tasks.tuning.search import load_validation
from oneclass.tasks.tuning.trial import MIN_USERS, evaluate_model, sample_users

logger = logging.getLogger(__name__)

MAX_COMPONENTS = 8  # that are weighed
VALIDATION_USERS = 4000  # users at most who judge
BLOCK_ENTRIES = 1 << 24  # scores held at a time


def choose_components(
    home: Home,
    run_id: str,
    *,
    protocol: str,
    matrices_digest: str,
    digests: Mapping[str, str],
    settings: Mapping[str, ModelSettings],
    seed: int,
    day: date,
) -> BlendSettings | None:
    """The components of tonight's blend; None where no blend is better than its best component, which is said.

    Members are taken from the MOST_MODELS models that are best by themselves, each with its best score, by the metric by
    which settings are chosen on the protocol; the weights by S as well (`models.blend.weight_search`). The decision is by
    cross-validation over the validation users, and its figures are in `operations.model_settings`.

    Args:
        protocol: strong_generalization, next_events or given.
        matrices_digest: of its split.
        digests: of the fits on its training edges, by model.
        settings: of these models.
        seed: of the folds, of the cut and of the fits on it.
        day: up to which the run takes events.
    """
    if protocol == "strong_generalization":
        split = matrices.load_split(home, matrices_digest, parts=("validation",))
        train, held_out = split.train, split.parts.get("validation")
    else:
        cut = load_validation(home, protocol, matrices_digest, seed)
        train, held_out = cut.train, cut.part
    part = sample_users(held_out, VALIDATION_USERS) if held_out else None
    count = part.targets.shape[0] if part else 0
    if part is None or count < MIN_USERS:
        return _log_rejection(home, run_id, f"{count} validation users are too few to weigh models by")
    if protocol == "strong_generalization":
        models = (fits.load_fit(home, name, digest) for name, digest in digests.items())
    else:
        models = _fit_candidates(train, {name: settings[name] for name in digests}, seed, home.limits.threads)
    metric = PROTOCOLS[protocol].tuned_by
    lists = _rank_single_models(models, part, metric)
    if len(lists) < 2:
        return _log_rejection(home, run_id, "there are not two models to add")
    with kernel_threads(home.limits.threads):
        cut_at = int(metric.partition("@")[2])
        weighed = search_weights(Candidates.from_blocks(_score_blocks(lists, part), cut_at), seed)
    found = _component_settings(lists, weighed, settings)
    alone, together = weighed.alone[weighed.best].mean(), weighed.cross_validated.mean()
    best = f"{lists[weighed.best][0].name}/{lists[weighed.best][1]}"
    figures = f"{metric} {together:.4f} by cross-validation, {best} alone {alone:.4f}"
    if found is None or together <= alone:
        return _log_rejection(home, run_id, f"no blend is better than its best component: {figures}")
    error = metrics.mean_and_error(weighed.cross_validated).standard_error
    logger.info("blend: %s; %s over %d users", _describe_weights(found), figures, count)
    row = {
        "protocol": protocol, "searched_on": day, "metric": metric, "trials": weighed.tried, "at_start": float(alone),
        "reached": float(together), "standard_error": error, "users": train.shape[0],
        "items": train.shape[1], "edges": train.nnz, "key": matrices_digest,
    }  # fmt: skip
    record_settings(home, run_id, [ChosenSettings("blend", "search", _describe_weights(found), found, row)])
    return found


def _fit_candidates(
    train: csr_matrix, settings: Mapping[str, ModelSettings], seed: int, threads: int
) -> Iterator[Model]:
    """Models fitted to weigh by; those that fail are left out."""
    for name, chosen in settings.items():
        logger.info("blend: fitting %s on %s edges to weigh it", name, f"{train.nnz:,}")
        try:
            needed = MODELS[name].fit_bytes(chosen, train.shape, train.nnz)
            with memory_errors.guard_model_memory(f"blend: {name}", needed):
                fitted = MODELS[name](chosen, seed=seed, threads=threads).fit(train)
            yield fitted
        except Exception as error:
            if not is_model_error(error):
                raise
            logger.warning("blend: %s is left out: %s", name, error)


def _rank_single_models(models: Iterator[Model], part: Part, metric: str) -> list[tuple[Model, str]]:
    """The models that are best by themselves, each with its best score, the best first; no others are held."""
    found: list[tuple[float, Model, str]] = []
    for model in models:
        mean, score = evaluate_model(model, part, metric)
        found.append((mean.value, model, score))
        found = sorted(found, key=lambda one: -one[0])[:MAX_COMPONENTS]
    return [(model, score) for _, model, score in found]


def _score_blocks(lists: list[tuple[Model, str]], part: Part) -> Iterator[tuple]:
    """Scores of every list on the common scale, histories and targets, a block of users at a time."""
    count, items = part.histories.shape
    step = max(1, BLOCK_ENTRIES // (items * len(lists)))
    for start in range(0, count, step):
        histories, targets = part.histories[start : start + step], part.targets[start : start + step]
        users = None if part.rows is None else part.rows[start : start + step]
        scores = [
            normalize_scores(model.scores(histories, users=users, score=score), histories) for model, score in lists
        ]
        yield np.stack(scores), histories, targets


def _component_settings(
    lists: list[tuple[Model, str]], weight_search: WeightSearchResult, settings: Mapping[str, ModelSettings]
) -> BlendSettings | None:
    """The components with a weight; None where there are not two."""
    components = [
        Component(model=model.name, score=score, weight=weight, settings=settings[model.name].model_dump(mode="json"))
        for (model, score), weight in zip(lists, weight_search.weights, strict=True)
        if weight
    ]
    return BlendSettings(components=tuple(components)) if len(components) > 1 else None


def _describe_weights(found: BlendSettings) -> str:
    return " + ".join(f"{one.weight:g} {one.model}/{one.score}" for one in found.components)


def _log_rejection(home: Home, run_id: str, reason: str) -> None:
    logger.info("blend: %s", reason)
    record_settings(home, run_id, [ChosenSettings("blend", "default", reason, BlendSettings())])


blend_task = task(name="blend", task_run_name="blend", cache_policy=NO_CACHE, persist_result=False)(choose_components)
