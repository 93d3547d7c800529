"""Tune: settings for the models that nobody tuned on this data set, searched before the fits and kept for a while."""

from collections.abc import Mapping
from datetime import date

from oneclass.models.settings import ModelSettings
from oneclass.tasks.cluster import LOCAL, Executor
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.auto import SearchData, SearchRequest, choose_settings, record_settings


def tune(
    home: Home,
    run_id: str,
    *,
    digests: Mapping[str, str],
    models: Mapping[str, ModelSettings],
    request: SearchRequest,
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
    split = matrices.load_split(home, digests[protocol], parts=())
    log = SearchData(home, protocol, digests[protocol], split.train, day, seed, uses_latest=split.ends is not None)
    begun = [
        choose_settings(log, model, settings, request, executor)
        for model, settings in models.items()
        if settings.search_space
    ]
    found = [settled() for settled in begun]
    record_settings(home, run_id, found)
    return {**models, **{one.model: one.settings for one in found}}


tune_task = stage_task(tune)
