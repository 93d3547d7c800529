"""The search that a run makes by itself before the fits: which models it is for, how long it is, and what it found.

It is short: TRIALS fits at most, on a sample of the users or items of a large log, judged on validation users. What is best
on a sample need not be best on the log, so it is held against the settings at the start on more edges and items, CHECKED and
MORE_ITEMS at most. It leaves alone what was given, and the settings that are for a person to choose (`by_hand`). What it found
is good for DAYS days, or until the log has moved.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

from scipy.sparse import csr_matrix

from models.catalogue import MODELS
from models.settings import ModelSettings
from tasks.cluster import LOCAL, Executor, PendingCall
from tasks.errors import InputError
from tasks.stores import warehouse
from tasks.stores.home import Home
from tasks.tuning.best_settings import short
from tasks.tuning.search import Asked, Outcome, Search, best_of
from tasks.tuning.settled import Settled
from tasks.tuning.study import Study
from tasks.tuning.trial import LEAST_USERS, log_outcome, run_trial, submit_trial, trial_task

logger = logging.getLogger(__name__)

TRIALS = 12
SHARE, SMALLEST, LARGEST = 1 / 8, 50_000, 400_000  # training edges of a trial: a share of all, and its bounds
CHECKED = 1_600_000  # training edges, at most, on which the best of a sample is held against the start
ITEMS = 8_000  # of a trial of a model whose cost is that of its items
MORE_ITEMS = 20_000  # at most, on which its best is held against the start
LONG_FITS = 2_000_000  # training edges; with more, the numbers of factors and passes stay as they are
DAYS, MOVED = 30, 1.25  # a search is good for so long, while users, items and edges are so many times as many at most

When = Literal["auto", "off", "always"]
Trial = Callable[[Home, Search, int, PendingCall], Outcome]


@dataclass(frozen=True)
class Log:
    """What is searched on, the same for every model of a run.

    Attributes:
        protocol, digest: whose training edges a search fits on, and whose validation part judges it.
        train: these edges, (users, items).
        day: up to which the run takes events; no search of a later day is taken.
        seed: the run's.
        trial: `run_trial`; by default as a Prefect task.
        by_ends: whether the training edges that come last judge, in place of some that are drawn.
    """

    home: Home
    protocol: str
    digest: str
    train: csr_matrix
    day: date
    seed: int
    trial: Trial = trial_task
    by_ends: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        """By which one sees whether a log has moved."""
        return {"users": self.train.shape[0], "items": self.train.shape[1], "edges": self.train.nnz}


@dataclass(frozen=True)
class Wanted:
    """Which settings a run searches.

    Attributes:
        when: whether a search is made: `auto` where one is wanting, or `always`, or `off`.
        given: names of the settings that the command gave, by model; they stay.
        tuned: models that the data set's own file has settings for; `auto` makes no search for these.
    """

    when: When
    given: Mapping[str, Collection[str]] = field(default_factory=dict)
    tuned: Collection[str] = ()


def settle(
    log: Log, model: str, settings: ModelSettings, wanted: Wanted, executor: Executor = LOCAL
) -> Callable[[], Settled]:
    """The settings of one model for the fits of a run; what is returned waits for the search, where there is one.

    Args:
        executor: where a search is made; on a worker its trials are not task runs.
        settings: those without a search.
    """
    given, tuned, when = wanted.given.get(model, ()), model in wanted.tuned, wanted.when
    origin = "given" if given else "data set" if tuned else "default"
    search = _search(log, model, settings, given)
    if not search.space:
        return lambda: Settled(model, "given", "every setting that would be searched was given", settings)
    if when == "off" or (tuned and when == "auto"):
        why = "train.tune is off" if when == "off" else "the data set's file has settings for it"
        return lambda: Settled(model, origin, why, settings)
    if when == "auto" and (kept := _kept(log, search)):
        return lambda: kept
    if why := _not_worth_it(log, search):
        return lambda: Settled(model, origin, why, settings)
    in_tasks = (log.trial,) if executor is LOCAL else ()
    pending = executor.submit(trials, log.home, search, *in_tasks, label=f"{model}: search settings")
    return lambda: _searched(log, search, origin, *pending.result())


def _search(log: Log, model: str, settings: ModelSettings, given: Collection[str]) -> Search:
    space = {name: range_ for name, range_ in settings.search_space.items() if not range_.by_hand and name not in given}
    edges = int(min(max(SHARE * log.train.nnz, SMALLEST), LARGEST))
    items = ITEMS if MODELS[model].cost_is_of_items and log.train.shape[1] > ITEMS else None
    elsewhere = _elsewhere(log, settings, given)
    on = {"edges": edges, "items": items, "short": True}
    return Search(model, log.protocol, log.digest, settings, space, log.seed, elsewhere=elsewhere, **on)


def _elsewhere(log: Log, settings: ModelSettings, given: Collection[str]) -> tuple[dict[str, Any], ...]:
    """What ranks well on other logs, for the second trial and those that follow.

    Those that are `by_hand` or not searched at all belong together: they are left out where the command gave one of them,
    and on a log on which their fits would take long.
    """
    space, found = settings.search_space, []
    for values in settings.elsewhere:
        together = {name for name in values if name not in space or space[name].by_hand}
        left = together if log.train.nnz > LONG_FITS or together & set(given) else set()
        found.append({name: value for name, value in values.items() if name not in {*left, *given}})
    return tuple(values for values in found if values)


def _not_worth_it(log: Log, search: Search) -> str:
    """Why there is no search; empty where there is one."""
    try:
        users = search.judged_on(log.home).users
    except InputError:
        users = 0
    return f"{users} validation users are too few to choose by" if users < LEAST_USERS else ""


def trials(home: Home, search: Search, trial: Trial = run_trial) -> tuple[list[Outcome], Outcome | None, list[Outcome]]:
    """A search's trials, one after the other; the best of them, None where all failed; and `_on_more` edges."""
    study, train = Study(home, search), search.judged_on(home).train
    while round_ := study.ask(TRIALS, train):
        for asked in round_:
            trial(home, search, asked.number, submit_trial(LOCAL, home, search, asked))
    found = study.outcomes(), study.best()
    study.forget()
    return *found, _on_more(home, search, found[1])


def _on_more(home: Home, search: Search, best: Outcome | None) -> list[Outcome]:
    """The settings at the start, and the best, on more of the log than the trials had; nothing where they had all of it."""
    if best is None or not best.values:
        return []
    more = _larger(search)
    if more.judged_on(home).train.nnz <= search.judged_on(home).train.nnz:
        return []
    found = []
    for number, values in enumerate(({}, best.values), TRIALS + 1):
        found.append(submit_trial(LOCAL, home, more, Asked(number, {}, values, {})).result().outcome)
        log_outcome(more, found[-1], best_of(found))
    return found


def _larger(search: Search) -> Search:
    return replace(search, edges=CHECKED, items=search.items and MORE_ITEMS)


def _searched(
    log: Log, search: Search, origin: str, outcomes: list[Outcome], best: Outcome | None, on_more: list[Outcome]
) -> Settled:
    if best is None:
        return Settled(search.model, origin, f"every trial failed, the last: {outcomes[-1].note}", search.start)
    first, said = outcomes[0], "nothing was better than the settings that it began at"
    edges = [search.judged_on(log.home).train.nnz]
    if better := best_of(on_more):
        first, best = on_more[0], better
        edges.append(_larger(search).judged_on(log.home).train.nnz)
        said = "nothing that it found was better, on more edges, than the settings that it began at"
    settings = search.start.tried(best.values, log.train) if best.values else search.start
    if best.values:
        said = ", ".join(f"{name} {short(getattr(settings, name))}" for name in {**search.space, **best.values})
    logger.info(
        "%s: the best of %d trials on %s edges: %s %s, at the start %s; %s",
        search.model,
        TRIALS,
        " and of it and the start on ".join(f"{count:,}" for count in edges),
        search.metric,
        short(best.value),
        short(first.value),
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
        "key": _key(log, search),
    }
    return Settled(search.model, "search", said, settings, found)


def _kept(log: Log, search: Search) -> Settled | None:
    """What an earlier search found, where it still holds."""
    asked = {"model": search.model, "key": _key(log, search), "day": log.day, "days": DAYS, "moved": MOVED, **log.sizes}
    with warehouse.connect(log.home, read_only=True) as connection:
        rows = warehouse.select(connection, "tune/kept", **asked).to_dicts()
    if not rows:
        return None
    [row] = rows
    of_model = {name: row.pop(name) for name in ("run_id", "model", "origin", "reason", "settings")}
    settings = type(search.start)(**json.loads(of_model["settings"]))
    logger.info("%s: settings of the search of %s", search.model, row["searched_on"])
    return Settled(search.model, "kept", of_model["reason"], settings, row)


def _key(log: Log, search: Search) -> str:
    """A digest of what a search depends on besides the log."""
    fixed = search.start.model_dump(mode="json", exclude=set(search.space))
    space = {name: repr(range_) for name, range_ in search.space.items()}
    parts = [search.protocol, search.metric, fixed, space, [*search.elsewhere], search.seed, search.source]
    parts += [CHECKED, MORE_ITEMS, *(["line_end"] if log.by_ends else [])]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
