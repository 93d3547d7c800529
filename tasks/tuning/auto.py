"""The search that a run makes by itself before the fits: for which models, on which data, and the reuse of its result.

Trials are fitted on a sample of the users or items of a large log and evaluated on validation users; `halving` says how
many each model has. Settings given by the user and `manual_only` ones are not searched.
"""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

import polars as pl

from oneclass.models.derived_settings import apply_trial
from oneclass.models.memory_estimates import LogSize
from oneclass.models.model_files import upgrade_settings
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings, SearchSpace
from oneclass.tasks.cluster import LOCAL, Executor
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.protocols import NEXT_EVENTS_VALIDATION, describe_folds, find_validation_splits
from oneclass.tasks.stores import matrices, stages, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.tuning.halving import SearchProgress, run_searches
from oneclass.tasks.tuning.search import Search, choose_space, describe_trials, find_best_trial, format_setting
from oneclass.tasks.tuning.validation import MIN_USERS

logger = logging.getLogger(__name__)

# The training edges of a trial: a share of all, within bounds.
SAMPLE_SHARE, MIN_SAMPLE_EDGES, MAX_SAMPLE_EDGES = 1 / 8, 100_000, 400_000
MAX_ITEMS = 8_000  # items of a trial, for models whose cost depends on the items
MAX_QUICK_EDGES = 2_000_000  # training edges; with more, `manual_only` settings are left out of the initial trials
MAX_AGE_DAYS, MAX_GROWTH = 30, 1.25  # validity of a result: its age, and the ratio of users, items and edges


@dataclass(frozen=True)
class ChosenSettings:
    """A model's settings and their origin: a row of `operations.model_settings`, without the run.

    Attributes:
        settings: the settings of every fit of the run.
        searched: the columns of a search; None without one.
        trials: rows of `operations.search_trials`, of a search of this run.
    """

    model: str
    origin: Literal["search", "kept", "data set", "given", "default"]
    reason: str
    settings: ModelSettings
    searched: dict[str, Any] | None = None
    trials: Sequence[dict[str, Any]] = ()


def record_settings(home: Home, run_id: str, choices: Collection[ChosenSettings]) -> None:
    """Write the rows of these models for a run, with their trials, under the contract of the stage `tune`."""
    rows, trials = list[dict[str, Any]](), list[dict[str, Any]]()
    for of in choices:
        names = {"run_id": run_id, "model": of.model}
        settled = {"origin": of.origin, "reason": of.reason, "settings": of.settings.model_dump_json()}
        rows.append({**(of.searched or {}), **names, **settled})
        trials += [{**trial, **names, "settings": json.dumps(trial["settings"])} for trial in of.trials]
    models = [of.model for of in choices]
    with stages.run_stage(home, run_id, "tune") as connection:
        for table, added in (("operations.model_settings", rows), ("operations.search_trials", trials)):
            connection.execute(f"delete from {table} where run_id = ? and model in ?", [run_id, models])
            warehouse.insert(connection, table, pl.DataFrame(added, infer_schema_length=None))


@dataclass(frozen=True)
class SearchRequest:
    """Which settings a run searches.

    Attributes:
        protocol: the one by whose validation part settings are chosen; None leaves them as they are.
        when: when to search: `auto` (only if no stored result is valid), `always` or `off`.
        given: names of the settings that the command gave, by model; they are not searched.
        tuned: models with settings in the data set's file; `auto` does not search these.
        day: the run takes events up to this day; results of searches on later days are not reused.
    """

    protocol: str | None
    when: Literal["auto", "off", "always"]
    given: Mapping[str, Collection[str]] = field(default_factory=dict)
    tuned: Collection[str] = ()
    seed: int = 0
    day: date = field(default_factory=date.today)


def tune(
    home: Home,
    run_id: str,
    request: SearchRequest,
    digests: Mapping[str, str],
    models: Mapping[str, ModelSettings],
    executor: Executor = LOCAL,
) -> dict[str, ModelSettings]:
    """Choose the settings of each model for the fits of this run; `operations.model_settings` records their origin.

    Args:
        models: the settings without a search.
        executor: runs the searches, concurrently if it has several workers.
    """
    if (protocol := request.protocol) is None:
        return dict(models)
    folds = tuple(digests[split] for split in find_validation_splits(protocol, digests))
    split = matrices.load_split(home, folds[0], parts=())
    is_latest = split.latest_mask is not None or split.protocol == NEXT_EVENTS_VALIDATION
    whole = LogSize.of(split.train)
    sizes = {"users": whole.users, "items": whole.items, "edges": whole.edges}
    choices, searches = dict[str, ChosenSettings](), list[Search]()
    for model, settings in models.items():
        if not settings.search_space:
            continue
        given = request.given.get(model, ())
        space, unsearched = _choose_searched(settings, given, split)
        samples_items = MODELS[model].estimate_cost(settings, whole).depends_on_items and whole.items > MAX_ITEMS
        edges = int(min(max(SAMPLE_SHARE * whole.edges, MIN_SAMPLE_EDGES), MAX_SAMPLE_EDGES))
        items = MAX_ITEMS if samples_items else None
        search = Search(model, protocol, folds, settings, space, request.seed, edges, items, unsearched, whole=whole)
        key = search.compute_digest(len(folds), is_latest)
        searched = {"protocol": protocol, "searched_on": request.day, "metric": search.metric, "key": key} | sizes
        origin = "given" if given else "data set" if model in request.tuned else "default"
        default = ChosenSettings(model, origin, "", settings, searched)
        choices[model] = _skip_search(home, search, request, default) or default
        if choices[model] is default:
            searches.append(search)
    for progress in run_searches(home, searches, len(digests), executor) if searches else ():
        model = progress.search.model
        choices[model] = _describe_search(home, progress, choices[model])
    record_settings(home, run_id, choices.values())
    return {**models, **{model: choice.settings for model, choice in choices.items()}}


tune_task = stage_task(tune)


def _choose_searched(
    settings: ModelSettings, given: Collection[str], split: SplitMatrices
) -> tuple[SearchSpace, tuple[str, ...]]:
    """Return the search space of a model, and the settings outside it that initial trials may vary.

    The latter belong together: there are none if the command gave one of them, or if the log is so large that their
    fits would take long. Weights of explicit negatives are not searched, nor is one of recency that is set.
    """
    space = {name: of for name, of in choose_space(settings, split).items() if not of.manual_only}
    left_out = {*settings.explicit_search_space, *(settings.recency_search_space.keys() & settings.model_fields_set)}
    space = {name: of for name, of in space.items() if name not in left_out}
    unsearched = {name for values in settings.initial_trials for name in values if name not in space}
    is_varied = split.train.nnz <= MAX_QUICK_EDGES and unsearched.isdisjoint(given)
    space = {name: of for name, of in space.items() if name not in given}
    return space, tuple(sorted(unsearched)) if is_varied else ()


def _skip_search(home: Home, search: Search, request: SearchRequest, default: ChosenSettings) -> ChosenSettings | None:
    """Return the settings of a model that this run does not search, by an earlier search or none; None if it does."""
    if not search.space:
        reason = "every setting that would be searched was given"
    elif request.when == "off":
        reason = "train.tune is off"
    elif request.when == "auto" and search.model in request.tuned:
        reason = "the data set's file has settings for it"
    elif request.when == "auto" and (stored := _load_stored_search(home, default)):
        reason, saved = stored.pop("reason"), json.loads(stored.pop("settings"))
        logger.info("%s: settings of the search of %s", search.model, stored["searched_on"])
        return ChosenSettings(search.model, "kept", reason, upgrade_settings(type(search.start), saved), stored)
    elif (users := search.count_users(home)) < MIN_USERS:
        reason = f"{users} validation users are too few to choose by"
    else:
        return None
    return replace(default, reason=reason, searched=None)


def _load_stored_search(home: Home, default: ChosenSettings) -> dict[str, Any] | None:
    """Load the row of an earlier search that is still valid."""
    names = ("key", "users", "items", "edges", "searched_on")
    parameters = {name: (default.searched or {})[name] for name in names} | {"model": default.model}
    with warehouse.open_warehouse(home, read_only=True) as connection:
        rows = warehouse.select(connection, "train/stored_settings", **parameters, days=MAX_AGE_DAYS, moved=MAX_GROWTH)
    return next(rows.iter_rows(named=True), None)


def _describe_search(home: Home, progress: SearchProgress, default: ChosenSettings) -> ChosenSettings:
    """Return the settings that a search found, and the figures that describe it."""
    search, best = progress.search, find_best_trial(progress.trials)
    trials = [{**row, "edges": search.load_folds(home)[0].train.nnz} for row in describe_trials(progress.trials)]
    if best is None:
        reason = f"every trial failed, the last: {trials[-1]['note']}"
        return replace(default, reason=reason, searched=None, trials=trials)
    # Multiples are of what the rules derive from the whole log.
    values, whole = best.user_attrs["values"], matrices.load_split(home, search.digests[0], parts=()).train
    settings = apply_trial(search.start, values, whole)
    named = [f"{name} {format_setting(getattr(settings, name))}" for name in {**search.space, **values}]
    reason = ", ".join(named) if values else "no trial improved on the initial settings"
    reason += f"; trials: {len(trials)} in {progress.cpu_seconds:,.0f} CPU s"
    reason += f", stopped: {progress.stopped}" if progress.stopped else ""
    at_start = trials[0]["value"]
    users = f"{search.count_users(home)} validation users{describe_folds(len(search.digests))}"
    figures = f"{format_setting(best.value)}, with the initial settings {format_setting(at_start)}"
    logger.info("%s: best by %s of %s: %s; %s", search.model, search.metric, users, figures, reason)
    searched = {"trials": len(trials), "seconds": progress.cpu_seconds, "at_start": at_start, "reached": best.value}
    searched |= {**(default.searched or {}), "standard_error": best.user_attrs["standard_error"]}
    return ChosenSettings(search.model, "search", reason, settings, searched, trials)
