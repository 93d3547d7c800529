"""Successive halving over the models of a run's search, under one budget of processor time.

After each round of trials the better half of the models goes on, so that most trials are of models that may be
published; into the last round only those that gained in the one before. A model that is stopped keeps the best of its
settings.
"""

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from optuna.trial import FrozenTrial

from oneclass.models.popularity import Popularity
from oneclass.models.registry import MODELS
from oneclass.tasks.cluster import LOCAL, Executor
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.search import Search, find_best_trial, run_trial

logger = logging.getLogger(__name__)

ROUNDS = (1, 4, 8, 12)  # trials that a model has made after each round; the first tells the time of its fits
# Of processor time, at least and at most; with less, searches of small logs would depend on the machine.
BUDGET_SECONDS = 120.0, 900.0


@dataclass(eq=False)
class SearchProgress:
    """The search of one model.

    Attributes:
        baseline: the value of popularity on the search's data.
        cpu_seconds: of the trials, evaluations included.
        stopped: why there are fewer than ROUNDS[-1] trials, as a sentence's end.
    """

    search: Search
    baseline: float
    trials: Sequence[FrozenTrial] = ()
    cpu_seconds: float = 0.0
    stopped: str = ""

    @property
    def gain(self) -> float:
        """The best value over that of popularity, since the searches of some models know fewer items."""
        best = find_best_trial(self.trials)
        return (best.value or 0.0) / max(self.baseline, 1e-9) if best else 0.0


def run_searches(
    home: Home, searches: Sequence[Search], splits: int, executor: Executor = LOCAL
) -> list[SearchProgress]:
    """Run the searches of several models by successive halving.

    Every model begins with the initial settings. A round divides what is left of the budget equally among the rounds
    to come and among the models that are still in the race.

    Args:
        splits: the number of fits of every model, whose estimated time is the budget, within BUDGET_SECONDS.
    """
    baselines = dict[int | None, float]()
    for search in {of.items: of for of in searches}.values():
        plain = replace(search, model="popularity", start=Popularity.Settings(), space={}, unsearched=())
        baselines[search.items] = run_trial(home, plain, ()).value or 0.0
    progress = live = [SearchProgress(search, baselines[search.items]) for search in searches]
    budget, spent = math.inf, 0.0
    for rounds_left, trials in zip(range(len(ROUNDS), 0, -1), ROUNDS, strict=True):
        seconds = (budget - spent) / rounds_left / max(1, len(live))
        calls = [
            executor.submit(run_trials, home, of.search, of.trials, trials, seconds, label=f"{of.search.model}: search")
            for of in live
        ]
        for of, call in zip(live, calls, strict=True):
            of.trials, of_round = call.result()
            of.cpu_seconds += of_round
        spent = sum(of.cpu_seconds for of in progress)
        if trials == 1:
            fits = sum(_estimate_fit_seconds(home, of) for of in progress)
            budget = min(max(splits * fits, BUDGET_SECONDS[0]), BUDGET_SECONDS[1])
        elif rounds_left > 1:
            live = _select_searches(live, trials, is_last=rounds_left == 2)
    for of in live:
        if len(of.trials) < ROUNDS[-1]:
            of.stopped = f"its share of the budget of {budget:,.0f} CPU s was spent"
    logger.info("searched %d models in %.0f CPU s of %.0f", len(progress), spent, budget)
    return progress


def _select_searches(live: list[SearchProgress], trials: int, *, is_last: bool) -> list[SearchProgress]:
    """Select the better half after a round, and into the last round those that gained; the others are stopped."""
    count = math.ceil(len(live) / 2)
    live = sorted(live, key=lambda of: -of.gain)
    for of in live[count:]:
        of.stopped = f"{count} models were better"
    for of in live[:count] if is_last else ():
        if len(of.trials) == trials and find_best_trial(of.trials) in of.trials[: ROUNDS[-3]]:
            of.stopped = f"its last {trials - ROUNDS[-3]} trials gained nothing"
    return [of for of in live if not of.stopped]


def _estimate_fit_seconds(home: Home, of: SearchProgress) -> float:
    """Estimate the time of a fit on the whole log, and of its evaluation, from that of the initial settings."""
    seconds, whole = of.cpu_seconds / len(of.search.digests), of.search.whole
    if whole is None or MODELS[of.search.model].estimate_cost(of.search.start, whole).depends_on_items:
        return seconds
    return seconds * whole.edges / of.search.load_folds(home)[0].train.nnz


def run_trials(
    home: Home, search: Search, earlier: Sequence[FrozenTrial], trials: int, seconds: float
) -> tuple[list[FrozenTrial], float]:
    """Run trials one after the other until the search has so many, and begin none after so many CPU seconds.

    Returns:
        The earlier and the new trials, and the CPU seconds of the new ones.
    """
    search.load_folds(home)  # the time to load them, into a cache, is no trial's
    ended, started = list(earlier), time.process_time()
    while len(ended) < trials and time.process_time() - started < seconds:
        ended.append(run_trial(home, search, ended))
    return ended, time.process_time() - started
