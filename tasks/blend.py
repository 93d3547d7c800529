"""Blend: which of a run's models are best together, and with which weights, by validation users alone.

On strong_generalization these are users that no model has seen, and the members are the run's own fits. `given` and
`next_events` test on training users, so there the models are fitted once more, on what is left of the training edges when
a part is cut from them to weigh on (`tasks.tuning.validation`).
"""

import logging
from collections.abc import Iterator, Mapping
from datetime import date

import numpy as np
from prefect import task
from prefect.cache_policies import NO_CACHE
from scipy.sparse import csr_matrix

from models.base import Model
from models.blend import BlendSettings, Candidates, Member, Weighed, weigh
from models.blend.scale import brought_to_scale
from models.catalogue import MODELS
from models.evaluation import metrics
from models.numerics.threads import kernel_threads
from models.settings import ModelSettings
from tasks import machine
from tasks.protocols import PROTOCOLS
from tasks.stores import fits, matrices
from tasks.stores.home import Home
from tasks.stores.matrices import Part
from tasks.train import is_of_the_model
from tasks.tuning.settled import Settled, record
from tasks.tuning.trial import LEAST_USERS, judge, some_users
from tasks.tuning.validation import validation

logger = logging.getLogger(__name__)

MOST_MODELS = 8  # that are weighed
JUDGES = 4000  # users at most who judge
BLOCK_ENTRIES = 1 << 24  # scores held at a time


def blend(
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
    """The members of tonight's blend; None where no blend is better than its best member, which is said.

    Members are taken from the MOST_MODELS models that are best by themselves, each with its best score, by the metric by
    which settings are chosen on the protocol; the weights by S as well (`models.blend.weights`). The decision is by
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
        split = matrices.read(home, matrices_digest, parts=("validation",))
        train, held_out = split.train, split.parts.get("validation")
    else:
        cut = validation(home, protocol, matrices_digest, seed)
        train, held_out = cut.train, cut.part
    part = some_users(held_out, JUDGES) if held_out else None
    count = part.targets.shape[0] if part else 0
    if count < LEAST_USERS:
        return _refused(home, run_id, f"{count} validation users are too few to weigh models by")
    if protocol == "strong_generalization":
        models = (fits.load(home, name, digest) for name, digest in digests.items())
    else:
        models = _refitted(train, {name: settings[name] for name in digests}, seed, home.limits.threads)
    metric = PROTOCOLS[protocol].tuned_by
    lists = _best_lists(models, part, metric)
    if len(lists) < 2:
        return _refused(home, run_id, "there are not two models to add")
    with kernel_threads(home.limits.threads):
        cut_at = int(metric.partition("@")[2])
        weighed = weigh(Candidates.of_blocks(_blocks(lists, part), cut_at), seed)
    found = _settings(lists, weighed, settings)
    alone, together = weighed.alone[weighed.best].mean(), weighed.cross_validated.mean()
    best = f"{lists[weighed.best][0].name}/{lists[weighed.best][1]}"
    figures = f"{metric} {together:.4f} by cross-validation, {best} alone {alone:.4f}"
    if found is None or together <= alone:
        return _refused(home, run_id, f"no blend is better than its best member: {figures}")
    error = metrics.mean(weighed.cross_validated).standard_error
    logger.info("blend: %s; %s over %d users", _told(found), figures, count)
    row = {
        "protocol": protocol, "searched_on": day, "metric": metric, "trials": weighed.tried, "at_start": float(alone),
        "reached": float(together), "standard_error": error, "users": train.shape[0],
        "items": train.shape[1], "edges": train.nnz, "key": matrices_digest,
    }  # fmt: skip
    record(home, run_id, [Settled("blend", "search", _told(found), found, row)])
    return found


def _refitted(train: csr_matrix, settings: Mapping[str, ModelSettings], seed: int, threads: int) -> Iterator[Model]:
    """Models fitted to weigh by; those that fail are left out."""
    for name, chosen in settings.items():
        logger.info("blend: fitting %s on %s edges to weigh it", name, f"{train.nnz:,}")
        try:
            needed = MODELS[name].fit_bytes(chosen, train.shape, train.nnz)
            with machine.memory_for_model(f"blend: {name}", needed):
                fitted = MODELS[name](chosen, seed=seed, threads=threads).fit(train)
            yield fitted
        except Exception as error:
            if not is_of_the_model(error):
                raise
            logger.warning("blend: %s is left out: %s", name, error)


def _best_lists(models: Iterator[Model], part: Part, metric: str) -> list[tuple[Model, str]]:
    """The models that are best by themselves, each with its best score, the best first; no others are held."""
    found: list[tuple[float, Model, str]] = []
    for model in models:
        mean, score = judge(model, part, metric)
        found.append((mean.value, model, score))
        found = sorted(found, key=lambda one: -one[0])[:MOST_MODELS]
    return [(model, score) for _, model, score in found]


def _blocks(lists: list[tuple[Model, str]], part: Part) -> Iterator[tuple]:
    """Scores of every list on the common scale, histories and targets, a block of users at a time."""
    count, items = part.histories.shape
    step = max(1, BLOCK_ENTRIES // (items * len(lists)))
    for start in range(0, count, step):
        histories, targets = part.histories[start : start + step], part.targets[start : start + step]
        users = None if part.rows is None else part.rows[start : start + step]
        scores = [
            brought_to_scale(model.scores(histories, users=users, score=score), histories) for model, score in lists
        ]
        yield np.stack(scores), histories, targets


def _settings(
    lists: list[tuple[Model, str]], weighed: Weighed, settings: Mapping[str, ModelSettings]
) -> BlendSettings | None:
    """The members with a weight; None where there are not two."""
    members = [
        Member(model=model.name, score=score, weight=weight, settings=settings[model.name].model_dump(mode="json"))
        for (model, score), weight in zip(lists, weighed.weights, strict=True)
        if weight
    ]
    return BlendSettings(members=tuple(members)) if len(members) > 1 else None


def _told(found: BlendSettings) -> str:
    return " + ".join(f"{one.weight:g} {one.model}/{one.score}" for one in found.members)


def _refused(home: Home, run_id: str, why: str) -> None:
    logger.info("blend: %s", why)
    record(home, run_id, [Settled("blend", "default", why, BlendSettings())])


blend_task = task(name="blend", task_run_name="blend", cache_policy=NO_CACHE, persist_result=False)(blend)
