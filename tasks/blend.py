"""Blend: which of a run's models are best together, and with which weights, by validation users alone."""

import logging
from collections.abc import Iterator, Mapping
from datetime import date

import numpy as np
from prefect import task
from prefect.cache_policies import NO_CACHE

from models.base import Model
from models.blend import BlendSettings, Candidates, Member, Weighed, weigh
from models.blend.scale import brought_to_scale
from models.evaluation import metrics
from models.numerics.threads import kernel_threads
from models.settings import ModelSettings
from tasks.promotion import METRIC, PROTOCOL
from tasks.stores import fits, matrices
from tasks.stores.home import Home
from tasks.stores.matrices import Part
from tasks.tuning.settled import Settled, record
from tasks.tuning.trial import LEAST_USERS, judge, some_users
from tasks.tuning.validation import JUDGES

logger = logging.getLogger(__name__)

MOST_MEMBERS = 5
BLOCK_ENTRIES = 1 << 24  # scores of one model held at a time


def blend(
    home: Home,
    run_id: str,
    *,
    matrices_digest: str,
    digests: Mapping[str, str],
    settings: Mapping[str, ModelSettings],
    seed: int,
    day: date,
) -> BlendSettings | None:
    """The members of tonight's blend; None where no blend is better than its best member, which is said.

    Members are taken from the five models that are best by themselves, each with its best score. The decision is by
    cross-validation over the validation users, and its figures are in `operations.model_settings`.

    Args:
        matrices_digest: of the split of `promotion.PROTOCOL`.
        digests: of the fits on its training edges, by model.
        settings: of these models.
        seed: of the folds.
        day: up to which the run takes events.
    """
    split = matrices.read(home, matrices_digest, parts=("validation",))
    validation = split.parts.get("validation")
    part = some_users(validation, JUDGES) if validation else None
    count = part.targets.shape[0] if part else 0
    if count < LEAST_USERS:
        return _refused(home, run_id, f"{count} validation users are too few to weigh models by")
    lists = _best_lists(home, digests, part)
    if len(lists) < 2:
        return _refused(home, run_id, "there are not two models to add")
    weighed = weigh(Candidates.of_blocks(_blocks(lists, part, home.limits.threads)), seed)
    found = _settings(lists, weighed, settings)
    alone, together = weighed.alone[weighed.best].mean(), weighed.cross_validated.mean()
    best = f"{lists[weighed.best][0].name}/{lists[weighed.best][1]}"
    figures = f"{METRIC} {together:.4f} by cross-validation, {best} alone {alone:.4f}"
    if found is None or together <= alone:
        return _refused(home, run_id, f"no blend is better than its best member: {figures}")
    error = metrics.mean(weighed.cross_validated).standard_error
    logger.info("blend: %s; %s over %d users", _told(found), figures, count)
    row = {
        "protocol": PROTOCOL, "searched_on": day, "metric": METRIC, "trials": weighed.tried, "at_start": float(alone),
        "reached": float(together), "standard_error": error, "users": split.train.shape[0],
        "items": split.train.shape[1], "edges": split.train.nnz, "key": matrices_digest,
    }  # fmt: skip
    record(home, run_id, [Settled("blend", "search", _told(found), found, row)])
    return found


def _best_lists(home: Home, digests: Mapping[str, str], part: Part) -> list[tuple[Model, str]]:
    """The models that are best by themselves, each with its best score, the best first."""
    found = []
    for name, digest in digests.items():
        model = fits.load(home, name, digest)
        mean, score = judge(model, part, METRIC)
        found.append((mean.value, model, score))
    found.sort(key=lambda one: -one[0])
    return [(model, score) for _, model, score in found[:MOST_MEMBERS]]


def _blocks(lists: list[tuple[Model, str]], part: Part, threads: int) -> Iterator[tuple]:
    """Scores of every list on the common scale, histories and targets, a block of users at a time."""
    users, items = part.histories.shape
    step = max(1, BLOCK_ENTRIES // (items * len(lists)))
    for start in range(0, users, step):
        histories, targets = part.histories[start : start + step], part.targets[start : start + step]
        with kernel_threads(threads):
            scores = [brought_to_scale(model.scores(histories, score=score), histories) for model, score in lists]
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
