"""The search that a run makes by itself before the fits: which models it is for, how long it is, and what it found.

It is short: TRIALS fits at most, on a sample of the users or items of a large log, judged on validation users. What is best
on a sample need not be best on the log, so it is held against the settings at the start on more edges and items, CHECKED and
MORE_ITEMS at most. It leaves alone what was given, and the settings that are for a person to choose (`by_hand`). What it found
is good for DAYS days, or until the log has moved.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.cluster import LOCAL, Executor, PendingCall
from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.search import Search, Trial, TrialOutcome, best_outcome
from oneclass.tasks.tuning.study import Study, format_setting
from oneclass.tasks.tuning.trial import MIN_USERS, log_outcome, record_pending_trial, submit_trial, trial_task

Origin = Literal["search", "kept", "data set", "given", "default"]


@dataclass(frozen=True)
class ChosenSettings:
    """Where a model's settings come from: a row of `operations.model_settings`, without the run.

    Attributes:
        settings: what every fit of the run has.
        searched: the columns of a search; none where none was made or kept.
    """

    model: str
    origin: Origin
    reason: str
    settings: ModelSettings
    searched: dict[str, Any] | None = None

    @property
    def row(self) -> dict[str, Any]:
        """The columns and their values."""
        said = {"model": self.model, "origin": self.origin, "reason": self.reason}
        return {**said, **(self.searched or {}), "settings": self.settings.model_dump_json()}


def record_settings(home: Home, run_id: str, found: Sequence[ChosenSettings]) -> None:
    """Write the rows of these models for a run; the contract of the stage `tune` closes it."""
    rows = pl.DataFrame([{"run_id": run_id, **one.row} for one in found], infer_schema_length=None)
    with warehouse.run_stage(home, run_id, "tune") as connection:
        names = [one.model for one in found]
        connection.execute("delete from operations.model_settings where run_id = ? and model in ?", [run_id, names])
        warehouse.insert(connection, "operations.model_settings", rows)


logger = logging.getLogger(__name__)

NUM_TRIALS = 12
SAMPLE_SHARE, MIN_SAMPLE_EDGES, MAX_SAMPLE_EDGES = (
    1 / 8,
    50_000,
    400_000,
)  # training edges of a trial: a share of all, and its bounds
MAX_CHECK_EDGES = 1_600_000  # training edges, at most, on which the best of a sample is held against the start
MAX_ITEMS = 8_000  # of a trial of a model whose cost is that of its items
MAX_CHECK_ITEMS = 20_000  # at most, on which its best is held against the start
MAX_QUICK_EDGES = 2_000_000  # training edges; with more, the numbers of factors and passes stay as they are
MAX_AGE_DAYS, MAX_GROWTH = (
    30,
    1.25,
)  # a search is good for so long, while users, items and edges are so many times as many at most

SearchMode = Literal["auto", "off", "always"]
TrialRunner = Callable[[Home, Search, int, PendingCall], TrialOutcome]


@dataclass(frozen=True)
class SearchData:
    """What is searched on, the same for every model of a run.

    Attributes:
        protocol, digest: whose training edges a search fits on, and whose validation part judges it.
        train: these edges, (users, items).
        day: up to which the run takes events; no search of a later day is taken.
        seed: the run's.
        trial: `record_pending_trial`; by default as a Prefect task.
        by_ends: whether the training edges that come last judge, in place of some that are drawn.
    """

    home: Home
    protocol: str
    digest: str
    train: csr_matrix
    day: date
    seed: int
    trial: TrialRunner = trial_task
    uses_latest: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        """By which one sees whether a log has moved."""
        return {"users": self.train.shape[0], "items": self.train.shape[1], "edges": self.train.nnz}


@dataclass(frozen=True)
class SearchRequest:
    """Which settings a run searches.

    Attributes:
        when: whether a search is made: `auto` where one is wanting, or `always`, or `off`.
        given: names of the settings that the command gave, by model; they stay.
        tuned: models that the data set's own file has settings for; `auto` makes no search for these.
    """

    when: SearchMode
    given: Mapping[str, Collection[str]] = field(default_factory=dict)
    tuned: Collection[str] = ()


def choose_settings(
    log: SearchData, model: str, settings: ModelSettings, request: SearchRequest, executor: Executor = LOCAL
) -> Callable[[], ChosenSettings]:
    """The settings of one model for the fits of a run; what is returned waits for the search, where there is one.

    Args:
        executor: where a search is made; on a worker its trials are not task runs.
        settings: those without a search.
    """
    given, tuned, when = request.given.get(model, ()), model in request.tuned, request.when
    origin = "given" if given else "data set" if tuned else "default"
    search = _build_search(log, model, settings, given)
    if not search.space:
        return lambda: ChosenSettings(model, "given", "every setting that would be searched was given", settings)
    if when == "off" or (tuned and when == "auto"):
        why = "train.tune is off" if when == "off" else "the data set's file has settings for it"
        return lambda: ChosenSettings(model, origin, why, settings)
    if when == "auto" and (kept := _find_stored_settings(log, search)):
        return lambda: kept
    if why := _reason_not_to_search(log, search):
        return lambda: ChosenSettings(model, origin, why, settings)
    in_tasks = (log.trial,) if executor is LOCAL else ()
    pending = executor.submit(run_trials, log.home, search, *in_tasks, label=f"{model}: search settings")
    return lambda: _search_outcome(log, search, origin, *pending.result())


def _build_search(log: SearchData, model: str, settings: ModelSettings, given: Collection[str]) -> Search:
    space = {
        name: range_ for name, range_ in settings.search_space.items() if not range_.manual_only and name not in given
    }
    edges = int(min(max(SAMPLE_SHARE * log.train.nnz, MIN_SAMPLE_EDGES), MAX_SAMPLE_EDGES))
    items = MAX_ITEMS if MODELS[model].cost_depends_on_items and log.train.shape[1] > MAX_ITEMS else None
    elsewhere = _initial_trials(log, settings, given)
    on = {"edges": edges, "items": items, "quick": True}
    return Search(model, log.protocol, log.digest, settings, space, log.seed, initial_trials=elsewhere, **on)


def _initial_trials(log: SearchData, settings: ModelSettings, given: Collection[str]) -> tuple[dict[str, Any], ...]:
    """What ranks well on other logs, for the second trial and those that follow.

    Those that are `by_hand` or not searched at all belong together: they are left out where the command gave one of them,
    and on a log on which their fits would take long.
    """
    space, found = settings.search_space, []
    for values in settings.initial_trials:
        together = {name for name in values if name not in space or space[name].manual_only}
        left = together if log.train.nnz > MAX_QUICK_EDGES or together & set(given) else set()
        found.append({name: value for name, value in values.items() if name not in {*left, *given}})
    return tuple(values for values in found if values)


def _reason_not_to_search(log: SearchData, search: Search) -> str:
    """Why there is no search; empty where there is one."""
    try:
        users = search.validation_data(log.home).users
    except InputError:
        users = 0
    return f"{users} validation users are too few to choose by" if users < MIN_USERS else ""


def run_trials(
    home: Home, search: Search, trial: TrialRunner = record_pending_trial
) -> tuple[list[TrialOutcome], TrialOutcome | None, list[TrialOutcome]]:
    """A search's trials, one after the other; the best of them, None where all failed; and `_confirm_on_larger_sample` edges."""
    study, train = Study(home, search), search.validation_data(home).train
    while round_ := study.ask(NUM_TRIALS, train):
        for asked in round_:
            trial(home, search, asked.number, submit_trial(LOCAL, home, search, asked))
    found = study.outcomes(), study.best()
    study.delete()
    return *found, _confirm_on_larger_sample(home, search, found[1])


def _confirm_on_larger_sample(home: Home, search: Search, best: TrialOutcome | None) -> list[TrialOutcome]:
    """The settings at the start, and the best, on more of the log than the trials had; nothing where they had all of it."""
    if best is None or not best.values:
        return []
    more = _enlarge_search(search)
    if more.validation_data(home).train.nnz <= search.validation_data(home).train.nnz:
        return []
    found = []
    for number, values in enumerate(({}, best.values), NUM_TRIALS + 1):
        found.append(submit_trial(LOCAL, home, more, Trial(number, {}, values, {})).result().outcome)
        log_outcome(more, found[-1], best_outcome(found))
    return found


def _enlarge_search(search: Search) -> Search:
    return replace(search, edges=MAX_CHECK_EDGES, items=search.items and MAX_CHECK_ITEMS)


def _search_outcome(
    log: SearchData,
    search: Search,
    origin: Origin,
    outcomes: list[TrialOutcome],
    best: TrialOutcome | None,
    on_more: list[TrialOutcome],
) -> ChosenSettings:
    if best is None:
        return ChosenSettings(search.model, origin, f"every trial failed, the last: {outcomes[-1].note}", search.start)
    first, said = outcomes[0], "nothing was better than the settings that it began at"
    edges = [search.validation_data(log.home).train.nnz]
    if better := best_outcome(on_more):
        first, best = on_more[0], better
        edges.append(_enlarge_search(search).validation_data(log.home).train.nnz)
        said = "nothing that it found was better, on more edges, than the settings that it began at"
    settings = search.start.tried(best.values, log.train) if best.values else search.start
    if best.values:
        said = ", ".join(
            f"{name} {format_setting(getattr(settings, name))}" for name in {**search.space, **best.values}
        )
    logger.info(
        "%s: the best of %d trials on %s edges: %s %s, at the start %s; %s",
        search.model,
        NUM_TRIALS,
        " and of it and the start on ".join(f"{count:,}" for count in edges),
        search.metric,
        format_setting(best.value),
        format_setting(first.value),
        said,
    )
    found = {
        "protocol": log.protocol,
        "searched_on": log.day,
        "metric": search.metric,
        "trials": len(outcomes),
        "seconds": sum(one.seconds for one in [*outcomes, *on_more]),
        "at_start": first.value if first.state == "done" else None,
        "reached": best.value,
        "standard_error": best.standard_error,
        **log.sizes,
        "key": _search_key(log, search),
    }
    return ChosenSettings(search.model, "search", said, settings, found)


def _find_stored_settings(log: SearchData, search: Search) -> ChosenSettings | None:
    """What an earlier search found, where it still holds."""
    asked = {
        "model": search.model,
        "key": _search_key(log, search),
        "day": log.day,
        "days": MAX_AGE_DAYS,
        "moved": MAX_GROWTH,
        **log.sizes,
    }
    with warehouse.open_warehouse(log.home, read_only=True) as connection:
        rows = warehouse.select(connection, "tune/stored_settings", **asked).to_dicts()
    if not rows:
        return None
    [row] = rows
    of_model = {name: row.pop(name) for name in ("run_id", "model", "origin", "reason", "settings")}
    settings = type(search.start).from_saved(json.loads(of_model["settings"]))
    logger.info("%s: settings of the search of %s", search.model, row["searched_on"])
    return ChosenSettings(search.model, "kept", of_model["reason"], settings, row)


def _search_key(log: SearchData, search: Search) -> str:
    """A digest of what a search depends on besides the log."""
    fixed = search.start.model_dump(mode="json", exclude=set(search.space))
    space = {name: repr(range_) for name, range_ in search.space.items()}
    parts = [search.protocol, search.metric, fixed, space, [*search.initial_trials], search.seed, search.source]
    parts += [MAX_CHECK_EDGES, MAX_CHECK_ITEMS, *(["latest"] if log.uses_latest else [])]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
