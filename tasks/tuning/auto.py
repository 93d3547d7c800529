"""The automatic search that a run makes before the fits: for which models, its data, and the reuse of its result.

Trials are fitted on a sample of the users or items of a large log and evaluated on validation users; `halving` says how
many each model has. A fit that takes many times as long as that of the initial settings is stopped (`limit_seconds`),
and settings that need many times the memory on the whole log are not fitted (`limit_bytes`).
Settings given by the user and `manual_only` ones are not searched. A result is valid for MAX_AGE_DAYS days, or until
the log has grown or shrunk by more than MAX_GROWTH.
"""

import json
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings, RecencySettings
from oneclass.tasks.cluster import LOCAL, Executor
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import describe_folds
from oneclass.tasks.stores import stages, warehouse
from oneclass.tasks.stores.checksums import compute_key
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.halving import (
    MAX_CHECK_EDGES,
    MAX_CHECK_ITEMS,
    SearchBudget,
    SearchProgress,
    TrialRunner,
    enlarge_search,
    run_searches,
)
from oneclass.tasks.tuning.recency import choose_recency
from oneclass.tasks.tuning.search import Search, TrialOutcome, best_outcome, format_setting
from oneclass.tasks.tuning.trial import MIN_USERS, trial_task

Origin = Literal["search", "kept", "data set", "given", "default"]


@dataclass(frozen=True)
class ChosenSettings:
    """A model's settings and their origin: a row of `operations.model_settings`, without the run.

    Attributes:
        settings: the settings of every fit of the run.
        searched: the columns of a search; None without one.
        trials: those of a search of this run, each with its number of training edges.
    """

    model: str
    origin: Origin
    reason: str
    settings: ModelSettings
    searched: dict[str, Any] | None = None
    trials: tuple[tuple[TrialOutcome, int], ...] = ()

    @property
    def row(self) -> dict[str, Any]:
        """Values by column."""
        origin = {"model": self.model, "origin": self.origin, "reason": self.reason}
        return {**origin, **(self.searched or {}), "settings": self.settings.model_dump_json()}

    @property
    def trial_rows(self) -> list[dict[str, Any]]:
        """Rows of `operations.search_trials`, without the run."""
        names = ("number", "state", "value", "standard_error", "score", "seconds", "note")
        return [
            {"model": self.model, "edges": edges, "settings": json.dumps(outcome.settings)}
            | {name: getattr(outcome, name) for name in names}
            for outcome, edges in self.trials
        ]


def record_settings(home: Home, run_id: str, choices: Sequence[ChosenSettings]) -> None:
    """Write the rows of these models for a run, with their trials, under the contract of the stage `tune`."""
    rows = pl.DataFrame([{"run_id": run_id, **choice.row} for choice in choices], infer_schema_length=None)
    trials = [{"run_id": run_id, **row} for choice in choices for row in choice.trial_rows]
    with stages.run_stage(home, run_id, "tune") as connection:
        names = [choice.model for choice in choices]
        for table in ("operations.model_settings", "operations.search_trials"):
            connection.execute(f"delete from {table} where run_id = ? and model in ?", [run_id, names])
        warehouse.insert(connection, "operations.model_settings", rows)
        warehouse.insert(connection, "operations.search_trials", pl.DataFrame(trials, infer_schema_length=None))


logger = logging.getLogger(__name__)

# The training edges of a trial: a share of all, within bounds.
SAMPLE_SHARE, MIN_SAMPLE_EDGES, MAX_SAMPLE_EDGES = 1 / 8, 50_000, 400_000
MAX_ITEMS = 8_000  # items of a trial, for models whose cost depends on the items
MAX_QUICK_EDGES = 2_000_000  # training edges; with more, `manual_only` settings are left out of the initial trials
MAX_AGE_DAYS, MAX_GROWTH = 30, 1.25  # validity of a result: its age, and the ratio of users, items and edges

SearchMode = Literal["auto", "off", "always"]


@dataclass(frozen=True)
class SearchData:
    """The data of a run's searches, the same for every model.

    Attributes:
        protocol, digest: of the split, or first fold, whose training edges are fitted and whose validation part
            evaluates the trials.
        train: these edges, (users, items).
        day: the run takes events up to this day; results of searches on later days are not reused.
        seed: the run's.
        trial: `record_pending_trial`; by default as a Prefect task.
        further_folds: the digests of the other folds.
        uses_latest: whether the latest training edges are the validation edges, instead of random ones.
        keeps_order: whether histories keep their order.
    """

    home: Home
    protocol: str
    digest: str
    train: csr_matrix
    day: date
    seed: int
    trial: TrialRunner = trial_task
    uses_latest: bool = False
    keeps_order: bool = False
    further_folds: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that decide whether an earlier result is still valid."""
        return {"users": self.train.shape[0], "items": self.train.shape[1], "edges": self.train.nnz}


@dataclass(frozen=True)
class SearchRequest:
    """Which settings a run searches.

    Attributes:
        when: when to search: `auto` (only if no stored result is valid), `always` or `off`.
        given: names of the settings that the command gave, by model; they are not searched.
        tuned: models with settings in the data set's file; `auto` does not search these.
        share: the budget of all searches, over the estimated time of the run's fits.
        seconds: the largest budget, CPU seconds.
    """

    when: SearchMode
    given: Mapping[str, Collection[str]] = field(default_factory=dict)
    tuned: Collection[str] = ()
    share: float = 1.0
    seconds: float = math.inf


def choose_settings(
    log: SearchData,
    models: Mapping[str, ModelSettings],
    request: SearchRequest,
    *,
    fits: int,
    executor: Executor = LOCAL,
) -> list[ChosenSettings]:
    """Choose the settings of models for the fits of a run.

    Args:
        models: the settings without a search, by model.
        fits: how many fits of each model the run makes.
        executor: runs the searches; on a worker their trials are not task runs.
    """
    given = {model: request.given.get(model, ()) for model in models}
    searches = {model: _build_search(log, model, settings, given[model]) for model, settings in models.items()}
    choices = {model: choice for model, search in searches.items() if (choice := _skip_search(log, search, request))}
    searched = [search for model, search in searches.items() if model not in choices]
    budget = SearchBudget(request.share, fits, request.seconds)
    for progress in run_searches(log.home, searched, budget, log.trial, executor) if searched else ():
        model = progress.search.model
        choices[model] = _search_outcome(log, progress, _find_origin(model, request))
    return [choices[model] for model in models]


def _find_origin(model: str, request: SearchRequest) -> Origin:
    """Return the origin of settings that are not searched."""
    return "given" if request.given.get(model) else "data set" if model in request.tuned else "default"


def _skip_search(log: SearchData, search: Search, request: SearchRequest) -> ChosenSettings | None:
    """Return the settings of a model that this run does not search; None if it does."""
    model, tuned, origin = search.model, search.model in request.tuned, _find_origin(search.model, request)
    if not search.space:
        return ChosenSettings(model, "given", "every setting that would be searched was given", search.start)
    if request.when == "off" or (tuned and request.when == "auto"):
        why = "train.tune is off" if request.when == "off" else "the data set's file has settings for it"
        return ChosenSettings(model, origin, why, search.start)
    if request.when == "auto" and (stored := _find_stored_settings(log, search)):
        return stored
    why = _reason_not_to_search(log, search)
    return ChosenSettings(model, origin, why, search.start) if why else None


def _build_search(log: SearchData, model: str, settings: ModelSettings, given: Collection[str]) -> Search:
    space = {
        name: range_ for name, range_ in settings.search_space.items() if not range_.manual_only and name not in given
    }
    whole = LogSize.of(log.train)
    depends = MODELS[model].estimate_cost(settings, whole).depends_on_items
    items = MAX_ITEMS if depends and log.train.shape[1] > MAX_ITEMS else None
    return Search(
        model,
        log.protocol,
        log.digest,
        settings,
        space,
        log.seed,
        edges=sample_edges(log.train.nnz),
        items=items,
        quick=True,
        initial_trials=_initial_trials(log, settings, given),
        further_folds=log.further_folds,
        weighs_recency=log.keeps_order
        and log.uses_latest
        and isinstance(settings, RecencySettings)
        and not settings.reads_order
        and "recency_exponent" not in given,
        whole=whole,
    )


def sample_edges(edges: int) -> int:
    """Return about how many training edges a trial has, of those of a log."""
    return int(min(max(SAMPLE_SHARE * edges, MIN_SAMPLE_EDGES), MAX_SAMPLE_EDGES))


def _initial_trials(log: SearchData, settings: ModelSettings, given: Collection[str]) -> tuple[dict[str, Any], ...]:
    """Return the settings that worked well on other data sets, for the second trial and those that follow.

    Settings outside the search belong together: they are left out if the command gave one of them, or if the log is so
    large that their fits would take long.
    """
    space, trials = settings.search_space, []
    for values in settings.initial_trials:
        not_searched = {name for name in values if name not in space or space[name].manual_only}
        dropped = not_searched if log.train.nnz > MAX_QUICK_EDGES or not_searched & set(given) else set()
        trials.append({name: value for name, value in values.items() if name not in {*dropped, *given}})
    return tuple(values for values in trials if values)


def _reason_not_to_search(log: SearchData, search: Search) -> str:
    """Return why no search is possible, or an empty text."""
    try:
        users = search.count_users(log.home)
    except InputError:
        users = 0
    return f"{users} validation users are too few to choose by" if users < MIN_USERS else ""


def _search_outcome(log: SearchData, progress: SearchProgress, origin: Origin) -> ChosenSettings:
    search, outcomes, confirmed = progress.search, progress.outcomes, progress.confirmed
    edges = [search.validation_data(log.home).train.nnz]
    trials = tuple((outcome, edges[0]) for outcome in outcomes)
    best, first, reason = progress.best, outcomes[0], "no trial improved on the initial settings"
    if best is None:
        reason = f"every trial failed, the last: {outcomes[-1].note}"
        return ChosenSettings(search.model, origin, reason, search.start, trials=trials)
    if best_confirmed := best_outcome(confirmed):
        first, best = confirmed[0], best_confirmed
        edges.append(enlarge_search(search).validation_data(log.home).train.nnz)
        trials += tuple((outcome, edges[1]) for outcome in confirmed)
        reason = "no trial improved on the initial settings on the larger sample"
    recency = choose_recency(log.home, search, best.values) if search.weighs_recency else {}
    values = {**best.values, **recency}
    settings = search.start.with_trial_values(values, log.train) if values else search.start
    if values:
        named = {**(search.space if best.values else {}), **values}
        reason = ", ".join(f"{name} {format_setting(getattr(settings, name))}" for name in named)
    spent = f"trials: {len(outcomes)} in {progress.cpu_seconds:,.0f} CPU s"
    reason += f"; {spent}" + (f", stopped: {progress.stopped}" if progress.stopped else "")
    logger.info(
        "%s: best of %d trials on %s edges, by %s of %d validation users%s: %s, with the initial settings %s; %s",
        search.model,
        len(outcomes),
        ", confirmed on ".join(f"{count:,}" for count in edges),
        search.metric,
        search.count_users(log.home),
        describe_folds(search.folds),
        format_setting(best.value),
        format_setting(first.value),
        reason,
    )
    searched = {
        "protocol": log.protocol,
        "searched_on": log.day,
        "metric": search.metric,
        "trials": len(outcomes),
        "seconds": progress.trial_cpu_seconds,
        "at_start": first.value if first.state == "done" else None,
        "reached": best.value,
        "standard_error": best.standard_error,
        **log.sizes,
        "key": _search_key(log, search),
    }
    return ChosenSettings(search.model, "search", reason, settings, searched, trials)


def _find_stored_settings(log: SearchData, search: Search) -> ChosenSettings | None:
    """Return the result of an earlier search, if it is still valid."""
    parameters = {
        "model": search.model,
        "key": _search_key(log, search),
        "day": log.day,
        "days": MAX_AGE_DAYS,
        "moved": MAX_GROWTH,
        **log.sizes,
    }
    with warehouse.open_warehouse(log.home, read_only=True) as connection:
        rows = warehouse.select(connection, "tune/stored_settings", **parameters).to_dicts()
    if not rows:
        return None
    [row] = rows
    of_model = {name: row.pop(name) for name in ("run_id", "model", "origin", "reason", "settings")}
    settings = type(search.start).from_saved(json.loads(of_model["settings"]))
    logger.info("%s: settings of the search of %s", search.model, row["searched_on"])
    return ChosenSettings(search.model, "kept", of_model["reason"], settings, row)


def _search_key(log: SearchData, search: Search) -> str:
    """Return the digest of everything except the log that a search depends on."""
    fixed = search.start.model_dump(mode="json", exclude=set(search.space))
    space = {name: repr(range_) for name, range_ in search.space.items()}
    parts = [search.protocol, search.metric, fixed, space, [*search.initial_trials], search.seed, search.source]
    parts += [MAX_CHECK_EDGES, MAX_CHECK_ITEMS, *(["latest"] if log.uses_latest else [])]
    parts += ["recency"] if search.weighs_recency else []
    parts += [f"{search.folds} folds"] if search.further_folds else []
    return compute_key(*parts)[:16]
