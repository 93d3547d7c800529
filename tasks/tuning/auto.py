"""The automatic search that a run makes before the fits: for which models, its trials, and the reuse of its result.

A search has at most NUM_TRIALS fits, on a sample of the users or items of a large log, evaluated on validation users.
The best settings of a sample need not be the best on the log, so they are compared with the initial settings on a
larger sample (MAX_CHECK_EDGES, MAX_CHECK_ITEMS). A fit that takes many times as long as that of the initial settings is
stopped (`limit_seconds`). Settings given by the user and `manual_only` ones are not searched. A
result is valid for MAX_AGE_DAYS days, or until the log has grown or shrunk by more than MAX_GROWTH.
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
from oneclass.tasks.protocols import describe_folds
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.search import Search, Trial, TrialOutcome, best_outcome, limit_seconds
from oneclass.tasks.tuning.study import Study, format_setting
from oneclass.tasks.tuning.trial import MIN_USERS, log_outcome, record_pending_trial, submit_trial, trial_task

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
    with warehouse.run_stage(home, run_id, "tune") as connection:
        names = [choice.model for choice in choices]
        for table in ("operations.model_settings", "operations.search_trials"):
            connection.execute(f"delete from {table} where run_id = ? and model in ?", [run_id, names])
        warehouse.insert(connection, "operations.model_settings", rows)
        warehouse.insert(connection, "operations.search_trials", pl.DataFrame(trials, infer_schema_length=None))


logger = logging.getLogger(__name__)

NUM_TRIALS = 12
# The training edges of a trial: a share of all, within bounds.
SAMPLE_SHARE, MIN_SAMPLE_EDGES, MAX_SAMPLE_EDGES = 1 / 8, 50_000, 400_000
MAX_CHECK_EDGES = 1_600_000  # training edges on which the best of a sample is compared with the initial settings
MAX_ITEMS = 8_000  # items of a trial, for models whose cost depends on the items
MAX_CHECK_ITEMS = 20_000  # items of that comparison
MAX_QUICK_EDGES = 2_000_000  # training edges; with more, `manual_only` settings are left out of the initial trials
MAX_AGE_DAYS, MAX_GROWTH = 30, 1.25  # validity of a result: its age, and the ratio of users, items and edges

SearchMode = Literal["auto", "off", "always"]
TrialRunner = Callable[[Home, Search, int, PendingCall], TrialOutcome]


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
    """

    home: Home
    protocol: str
    digest: str
    train: csr_matrix
    day: date
    seed: int
    trial: TrialRunner = trial_task
    uses_latest: bool = False
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
    """

    when: SearchMode
    given: Mapping[str, Collection[str]] = field(default_factory=dict)
    tuned: Collection[str] = ()


def choose_settings(
    log: SearchData, model: str, settings: ModelSettings, request: SearchRequest, executor: Executor = LOCAL
) -> Callable[[], ChosenSettings]:
    """Choose the settings of one model for the fits of a run.

    Args:
        settings: the settings without a search.
        executor: runs the search; on a worker its trials are not task runs.

    Returns:
        A function that waits for the search, if there is one, and returns its result.
    """
    given, tuned, when = request.given.get(model, ()), model in request.tuned, request.when
    origin = "given" if given else "data set" if tuned else "default"
    search = _build_search(log, model, settings, given)
    if not search.space:
        return lambda: ChosenSettings(model, "given", "every setting that would be searched was given", settings)
    if when == "off" or (tuned and when == "auto"):
        why = "train.tune is off" if when == "off" else "the data set's file has settings for it"
        return lambda: ChosenSettings(model, origin, why, settings)
    if when == "auto" and (stored := _find_stored_settings(log, search)):
        return lambda: stored
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
    return Search(
        model,
        log.protocol,
        log.digest,
        settings,
        space,
        log.seed,
        edges=edges,
        items=items,
        quick=True,
        initial_trials=_initial_trials(log, settings, given),
        further_folds=log.further_folds,
    )


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


def run_trials(
    home: Home, search: Search, trial: TrialRunner = record_pending_trial
) -> tuple[list[TrialOutcome], TrialOutcome | None, list[TrialOutcome]]:
    """Run the trials of a search, one after the other.

    Returns:
        The outcomes; the best of them, None if all failed; and the outcomes of `_confirm_on_larger_sample`.
    """
    study, train = Study(home, search), search.validation_data(home).train
    while batch := study.ask(NUM_TRIALS, train):
        for suggested in batch:
            trial(home, search, suggested.number, submit_trial(LOCAL, home, search, suggested))
    outcomes, best = study.outcomes(), study.best()
    study.delete()
    return outcomes, best, _confirm_on_larger_sample(home, search, best)


def _confirm_on_larger_sample(home: Home, search: Search, best: TrialOutcome | None) -> list[TrialOutcome]:
    """Evaluate the initial and the best settings on a larger sample; no outcomes if the trials had the whole log."""
    if best is None or not best.values:
        return []
    larger = _enlarge_search(search)
    if larger.validation_data(home).train.nnz <= search.validation_data(home).train.nnz:
        return []
    outcomes: list[TrialOutcome] = []
    for number, values in enumerate(({}, best.values), NUM_TRIALS + 1):
        trial = Trial(number, {}, values, {}, limit_seconds(outcomes[0] if outcomes else None))
        outcomes.append(submit_trial(LOCAL, home, larger, trial).result().outcome)
        log_outcome(larger, outcomes[-1], best_outcome(outcomes))
    return outcomes


def _enlarge_search(search: Search) -> Search:
    return replace(search, edges=MAX_CHECK_EDGES, items=search.items and MAX_CHECK_ITEMS)


def _search_outcome(
    log: SearchData,
    search: Search,
    origin: Origin,
    outcomes: list[TrialOutcome],
    best: TrialOutcome | None,
    on_larger_sample: list[TrialOutcome],
) -> ChosenSettings:
    edges = [search.validation_data(log.home).train.nnz]
    trials = tuple((outcome, edges[0]) for outcome in outcomes)
    if best is None:
        reason = f"every trial failed, the last: {outcomes[-1].note}"
        return ChosenSettings(search.model, origin, reason, search.start, trials=trials)
    first, reason = outcomes[0], "no trial improved on the initial settings"
    if confirmed := best_outcome(on_larger_sample):
        first, best = on_larger_sample[0], confirmed
        edges.append(_enlarge_search(search).validation_data(log.home).train.nnz)
        trials += tuple((outcome, edges[1]) for outcome in on_larger_sample)
        reason = "no trial improved on the initial settings on the larger sample"
    settings = search.start.tried(best.values, log.train) if best.values else search.start
    if best.values:
        reason = ", ".join(
            f"{name} {format_setting(getattr(settings, name))}" for name in {**search.space, **best.values}
        )
    logger.info(
        "%s: best of %d trials on %s edges, by %s of %d validation users%s: %s, with the initial settings %s; %s",
        search.model,
        NUM_TRIALS,
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
        "seconds": sum(outcome.seconds for outcome in [*outcomes, *on_larger_sample]),
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
    parts += [f"{search.folds} folds"] if search.further_folds else []
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
