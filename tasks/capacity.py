"""Which models of a run the machine can fit on its log, before the first of them is fitted.

A default model that needs more memory than there is, or more time than all the others together, is left out; the run
says so in its log, its summary and its report. `sansa` takes the place of a dense Markov random field. A model that the
user named is refused instead.
"""

import json
import logging
from collections.abc import Collection, Mapping

from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.cluster import Executor
from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import matrices, resources, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.resources import KERNEL_BYTES

logger = logging.getLogger(__name__)

DENSE_MODEL, STAND_IN = "mrf_dense", "sansa"  # the latter is fitted to the same loss, sparsely
MIN_COST_SECONDS = 600.0  # CPU seconds of a fit, below which no model is left out for its time


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
        left_out = {"models": changed, "left_out": reasons}
        with warehouse.open_warehouse(home) as connection:
            merge = "update operations.runs set settings = json_merge_patch(settings, ?) where run_id = ?"
            connection.execute(merge, [json.dumps(left_out), run_id])
    return {name: of for name, of in models.items() if name not in reasons} | added
