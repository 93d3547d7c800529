"""Which models of a run the machine can fit on its log, and which need no more fits after the first protocol.

Before the first fit, a default model that needs more memory than there is, or more time than all the others together,
is left out. `sansa` takes the place of a dense Markov random field. A model that the user named is refused instead.
Where fits take long, a model that is surely below the best under the first protocol is not fitted under the others. The
run says so in its log, its summary and its report.
"""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from oneclass.models.evaluation.metrics import ALPHA, adjust_against_best, compare_paired
from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.cluster import Executor
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import PROTOCOLS, FittedSplit
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend.like_calibration import has_like
from oneclass.tasks.stores import fits, matrices, resources, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.resources import KERNEL_BYTES
from oneclass.tasks.tuning.validation import evaluate_model, sample_users

logger = logging.getLogger(__name__)

DENSE_MODEL, STAND_IN = "mrf_dense", "sansa"  # the latter is fitted to the same loss, sparsely
MIN_COST_SECONDS = 600.0  # CPU seconds of a fit, below which no model is left out for its time
LONG_SECONDS = 1200.0  # CPU seconds of fits left, ten minutes of two cores, above which few models are fitted on


def measure_logs(home: Home, digests: Collection[str]) -> list[LogSize]:
    """Measure the training matrices of splits; that of all edges has every item of the attribute table as a column."""
    return [LogSize.of(matrices.load_split(home, digest, parts=()).train) for digest in dict.fromkeys(digests)]


def available_memory(executor: Executor) -> int:
    """Return the memory that a fit may take: a worker's, if workers declare it, or what is free here."""
    return resources.free_memory() if executor.worker_memory is None else executor.worker_memory


def _describe_shortage(model: str, settings: ModelSettings, logs: Collection[LogSize], available: int) -> str:
    """Say how much memory the model's largest fit needs, and how much there is; empty if that is enough."""
    fits = [(MODELS[model].estimate_cost(settings, log).bytes + KERNEL_BYTES, log.items) for log in logs]
    needed, items = max(fits)
    if needed <= available:
        return ""
    need, free = resources.format_size(needed), resources.format_size(available)
    return f"a fit on {items:,} items needs about {need} of memory, and {free} are free"


def refuse_large_models(models: Mapping[str, ModelSettings], logs: Collection[LogSize], available: int) -> None:
    """Raise `InputError` for the first of the models that the user named and that needs more memory than there is."""
    for name, settings in models.items():
        if shortage := _describe_shortage(name, settings, logs, available):
            remedy = MODELS[name].estimate_cost(settings, next(iter(logs))).remedy
            remedies = filter(None, ["Leave it out of --models", "give the run more memory", remedy])
            raise InputError(f"{name}: {shortage}. {', or '.join(remedies)}.")


def find_large_models(models: Mapping[str, ModelSettings], logs: Collection[LogSize], available: int) -> dict[str, str]:
    """Return the models that are too large for the machine, each with the reason as a sentence's end."""
    shortages = {name: _describe_shortage(name, settings, logs, available) for name, settings in models.items()}
    reasons = {name: shortage for name, shortage in shortages.items() if shortage}
    seconds = {
        name: max(MODELS[name].estimate_cost(settings, log).seconds for log in logs)
        for name, settings in models.items()
        if name not in reasons
    }
    for name, cost in sorted(seconds.items(), key=lambda of: -of[1]):
        others = sum(of for other, of in seconds.items() if other not in reasons) - cost
        if cost > max(others, MIN_COST_SECONDS):
            reasons[name] = (
                f"a fit takes about {cost / 60:,.0f} CPU minutes, and those of all other models together "
                f"{others / 60:,.0f}"
            )
    return reasons


def choose_models(
    home: Home,
    run_id: str,
    models: Mapping[str, ModelSettings],
    named: Collection[str],
    logs: Collection[LogSize],
    available: int,
) -> dict[str, ModelSettings]:
    """Return a run's models without default ones that are too large, and record the change among the run's settings.

    Raises:
        InputError: one of `named` needs more memory than is `available`.
    """
    refuse_large_models({name: of for name, of in models.items() if name in named}, logs, available)
    reasons = find_large_models({name: of for name, of in models.items() if name not in named}, logs, available)
    added = {STAND_IN: MODELS[STAND_IN].Settings()} if DENSE_MODEL in reasons and STAND_IN not in models else {}
    added = {name: of for name, of in added.items() if not find_large_models(added, logs, available)}
    if reasons:
        for name, reason in reasons.items():
            logger.warning("%s: %s is left out: %s", home.dataset, name, reason)
        changed = dict.fromkeys(reasons) | {name: of.model_dump(mode="json") for name, of in added.items()}
        _change_settings(home, run_id, {"models": changed, "left_out": reasons})
    return {name: of for name, of in models.items() if name not in reasons} | added


def _change_settings(home: Home, run_id: str, changes: Mapping[str, Any]) -> None:
    with warehouse.open_warehouse(home) as connection:
        merge = "update operations.runs set settings = json_merge_patch(settings, ?) where run_id = ?"
        connection.execute(merge, [json.dumps(changes), run_id])


def estimate_seconds(home: Home, models: Mapping[str, ModelSettings], digests: Collection[str]) -> float:
    """Estimate the CPU seconds of the fits of all models on some splits."""
    costs = (MODELS[name].estimate_cost(of, log) for log in measure_logs(home, digests) for name, of in models.items())
    return sum(cost.seconds for cost in costs)


def find_models_behind(
    home: Home, run_id: str, protocol: str, judged: Sequence[FittedSplit], publish: PublishSettings
) -> list[str]:
    """Find the models that are surely below the best by a protocol's validation users, and record them for the report.

    Each model's best score is compared with the best of all by the protocol's tuning metric, paired over the users, at
    ALPHA by `adjust_against_best`. Kept are popularity, the models that `publish` names and the best that has a `like`,
    which says how sure lists are.

    Args:
        judged: the protocol's split, or its folds, with the models' fits; none is below without validation users.
    """
    parts = [matrices.load_split(home, digest, parts=("validation",)).parts.get("validation") for digest, _ in judged]
    if not all(parts) or len(judged[0][1]) < 2:
        return []
    parts, metric = [sample_users(part) for part in parts if part], PROTOCOLS[protocol].tuned_by
    values = {
        name: evaluate_model([fits.load_fit(home, name, of_split[name]) for _, of_split in judged], parts, metric)[0]
        for name in judged[0][1]
    }
    best, *others = sorted(values, key=lambda name: -values[name].mean())
    compared = [compare_paired(values[name], values[best], len(parts)) for name in others]
    p_values = adjust_against_best(np.array([1.0 if of.p_value is None else of.p_value for of in compared]))
    kept = {"popularity", publish.model, publish.companion, next(filter(has_like, [best, *others]), None)}
    reasons = {
        name: f"of all protocols but {protocol}, where {of.users:,} validation users put it below {best}: {metric} "
        f"{of.difference:+.4f} ± {of.standard_error:.4f}"
        for name, of, p_value in zip(others, compared, p_values, strict=True)
        if p_value < ALPHA and name not in kept
    }
    for name, reason in reasons.items():
        logger.info("%s is left out %s", name, reason)
    if reasons:
        _change_settings(home, run_id, {"left_out": reasons})
    return list(reasons)
