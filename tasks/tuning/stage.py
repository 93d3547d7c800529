"""Tune: search the settings of models that the data set has none for, before the fits, and reuse results for a
while.
"""

from collections.abc import Mapping
from datetime import date

from oneclass.models.settings import ModelSettings
from oneclass.tasks.cluster import LOCAL, Executor
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.protocols import NEXT_EVENTS_VALIDATION, find_validation_splits
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.auto import SearchData, SearchRequest, choose_settings, record_settings


def tune(
    home: Home,
    run_id: str,
    *,
    protocol: str | None,
    digests: Mapping[str, str],
    models: Mapping[str, ModelSettings],
    request: SearchRequest,
    day: date,
    seed: int,
    executor: Executor = LOCAL,
) -> dict[str, ModelSettings]:
    """Choose the settings of each model for the fits of this run; `operations.model_settings` records their origin.

    Args:
        protocol: the one by whose validation part settings are chosen; None leaves them as they are.
        digests: of the splits' matrices.
        models: the settings without a search.
        request: which of them to search.
        day: the run takes events up to this day; results of searches on later days are not reused.
        executor: runs the searches, concurrently if it has several workers.
    """
    if protocol is None:
        return dict(models)
    digest, *further_folds = [digests[split] for split in find_validation_splits(protocol, digests)]
    split = matrices.load_split(home, digest, parts=())
    uses_latest = split.latest_mask is not None or split.protocol == NEXT_EVENTS_VALIDATION
    log = SearchData(
        home,
        protocol,
        digest,
        split.train,
        day,
        seed,
        uses_latest=uses_latest,
        keeps_order=split.recency_ranks is not None,
        further_folds=tuple(further_folds),
    )
    searchable = {model: settings for model, settings in models.items() if settings.search_space}
    choices = choose_settings(log, searchable, request, fits=len(digests), executor=executor)
    record_settings(home, run_id, choices)
    return {**models, **{choice.model: choice.settings for choice in choices}}


tune_task = stage_task(tune)
