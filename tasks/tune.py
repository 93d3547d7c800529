"""Tune: settings for the models that nobody tuned on this data set, searched before the fits and kept for a while."""

from collections.abc import Mapping
from datetime import date

from models.settings import ModelSettings
from tasks.cluster import LOCAL, Executor
from tasks.orchestration.stage_task import stage_task
from tasks.protocols import PROTOCOLS
from tasks.stores import matrices
from tasks.stores.home import Home
from tasks.tuning.before_fits import Log, Wanted, settle
from tasks.tuning.settled import record


def tune(
    home: Home,
    run_id: str,
    *,
    digests: Mapping[str, str],
    models: Mapping[str, ModelSettings],
    wanted: Wanted,
    day: date,
    seed: int,
    executor: Executor = LOCAL,
) -> dict[str, ModelSettings]:
    """The settings of each model for the fits of this run; where they come from is in `operations.model_settings`.

    Args:
        digests: of the protocols' matrices; a search is judged on the validation part of the first in PROTOCOLS.
        models: the settings without a search.
        wanted: which of them are searched.
        day: up to which the run takes events; no search of a later day is taken.
        executor: where the searches are made, side by side where it has room.
    """
    protocol = next((name for name in PROTOCOLS if name in digests), None)
    if protocol is None:
        return dict(models)
    split = matrices.read(home, digests[protocol], parts=())
    log = Log(home, protocol, digests[protocol], split.train, day, seed, by_ends=split.ends is not None)
    begun = [
        settle(log, model, settings, wanted, executor) for model, settings in models.items() if settings.search_space
    ]
    found = [settled() for settled in begun]
    record(home, run_id, found)
    return {**models, **{one.model: one.settings for one in found}}


tune_task = stage_task(tune)
