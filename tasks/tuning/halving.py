"""Successive halving over the models of a run's search, under one budget of processor time.

After each round of trials the better half of the models goes on, so that most trials are of models that may be
published. A model that is stopped keeps the best of its settings. The best settings of a sample need not be the best on
the log, so they are compared with the initial settings on a larger sample (MAX_CHECK_EDGES, MAX_CHECK_ITEMS).
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from oneclass.models.memory_estimates import LogSize
from oneclass.models.popularity import Popularity
from oneclass.models.registry import MODELS
from oneclass.tasks.cluster import LOCAL, Executor, PendingCall
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.search import Search, Trial, TrialOutcome, TrialResult, best_outcome, limit_seconds
from oneclass.tasks.tuning.trial import evaluate_model, log_outcome, record_pending_trial, submit_trial

logger = logging.getLogger(__name__)

ROUNDS = (4, 8, 12)  # trials that a model has made after each round
NUM_TRIALS = ROUNDS[-1]
MIN_BUDGET_SECONDS = 120.0  # of processor time; with less, searches of small logs would depend on the machine
MAX_CHECK_EDGES = 1_600_000  # training edges on which the best of a sample is compared with the initial settings
MAX_CHECK_ITEMS = 20_000  # items of that comparison

TrialRunner = Callable[[Home, Search, int, PendingCall], TrialResult]


@dataclass(eq=False)
class SearchProgress:
    """The search of one model.

    Attributes:
        baseline: the value of popularity on the search's data.
        results: the trials, in their order.
        trial_cpu_seconds: of the trials, evaluations included.
        check_cpu_seconds: of the comparison on a larger sample.
        confirmed: the outcomes of the initial and the best settings on a larger sample; empty without one.
        stopped: why there are fewer than NUM_TRIALS trials, as a sentence's end.
    """

    search: Search
    baseline: float
    results: Sequence[TrialResult] = ()
    trial_cpu_seconds: float = 0.0
    check_cpu_seconds: float = 0.0
    confirmed: Sequence[TrialOutcome] = ()
    stopped: str = ""

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of the whole search."""
        return self.trial_cpu_seconds + self.check_cpu_seconds

    @property
    def outcomes(self) -> list[TrialOutcome]:
        return [result.outcome for result in self.results]

    @property
    def best(self) -> TrialOutcome | None:
        """The best trial; None if all failed."""
        return best_outcome(self.outcomes)

    @property
    def gain(self) -> float:
        """The best value over that of popularity, since the searches of some models know fewer items."""
        return (self.best.value or 0.0) / max(self.baseline, 1e-9) if self.best else 0.0


@dataclass(frozen=True)
class SearchBudget:
    """The processor time that the searches of a run may take together.

    Attributes:
        share: of the estimated time of the run's fits.
        fits: how many fits of each model the run makes.
        most: CPU seconds, whatever the fits take; MIN_BUDGET_SECONDS are always allowed.
    """

    share: float
    fits: int
    most: float = math.inf

    def seconds(self, fit_seconds: float) -> float:
        """Return the CPU seconds, given those of a fit of every model."""
        return max(MIN_BUDGET_SECONDS, min(self.share * self.fits * fit_seconds, self.most))


def run_searches(
    home: Home, searches: Sequence[Search], allowed: SearchBudget, trial: TrialRunner, executor: Executor = LOCAL
) -> list[SearchProgress]:
    """Run the searches of several models by successive halving.

    Every model begins with the initial settings. A round divides what is left of the budget equally among the rounds
    to come, the comparison on a larger sample being the last, and among the models that are still in the race.

    Args:
        allowed: the budget.
        trial: runs and records a trial.
    """
    tasks = (trial,) if executor is LOCAL else ()  # trials on a worker are no task runs
    baselines = {of.items: _evaluate_popularity(home, of) for of in {of.items: of for of in searches}.values()}
    progress = [SearchProgress(search, baselines[search.items]) for search in searches]

    def make_trials(models: Sequence[SearchProgress], trials: int, seconds: float) -> None:
        calls = [
            executor.submit(
                run_trials, home, of.search, of.results, trials, seconds, *tasks, label=f"{of.search.model}: search"
            )
            for of in models
        ]
        for of, call in zip(models, calls, strict=True):
            of.results, seconds = call.result()
            of.trial_cpu_seconds += seconds

    make_trials(progress, 1, math.inf)
    budget = allowed.seconds(sum(_estimate_fit_seconds(home, of) for of in progress))
    live = progress
    for number, trials in enumerate(ROUNDS):
        left = budget - sum(of.cpu_seconds for of in progress)
        make_trials(live, trials, left / (len(ROUNDS) + 1 - number) / len(live))
        for of in live:
            of.stopped = (
                "" if len(of.results) == trials else f"its share of the budget of {budget:,.0f} CPU s was spent"
            )
        if number + 1 < len(ROUNDS):
            live, dropped = _keep_better_half(live)
            for of in dropped:
                of.stopped = f"{len(live)} models were better"
    _confirm_on_larger_sample(home, progress, budget - sum(of.cpu_seconds for of in progress), executor)
    logger.info(
        "searched %d models by %d trials in %.0f CPU s, of a budget of %.0f",
        len(progress),
        sum(len(of.results) for of in progress),
        sum(of.cpu_seconds for of in progress),
        budget,
    )
    return progress


def _evaluate_popularity(home: Home, search: Search) -> float:
    folds = list(search.iterate_folds(home))
    models = [Popularity().fit(data.train) for data in folds]
    return evaluate_model(models, [data.part for data in folds], search.metric)[0].value


def _estimate_fit_seconds(home: Home, of: SearchProgress) -> float:
    """Estimate the time of a fit on the whole log, and of its evaluation, from that of the initial settings."""
    seconds, train = of.cpu_seconds / of.search.folds, of.search.validation_data(home).train
    if MODELS[of.search.model].estimate_cost(of.search.start, LogSize.of(train)).depends_on_items:
        return seconds
    return seconds * _count_edges(home, replace(of.search, edges=None)) / train.nnz


def _count_edges(home: Home, search: Search) -> int:
    return search.validation_data(home).train.nnz


def _keep_better_half(live: list[SearchProgress]) -> tuple[list[SearchProgress], list[SearchProgress]]:
    """Return the better half of the models, the larger one of an odd number, and the others."""
    ranked = sorted(live, key=lambda of: -of.gain)
    better = ranked[: (len(live) + 1) // 2]
    return [of for of in live if of in better], [of for of in live if of not in better]


def run_trials(
    home: Home,
    search: Search,
    earlier: Sequence[TrialResult],
    trials: int,
    seconds: float,
    trial: TrialRunner = record_pending_trial,
) -> tuple[list[TrialResult], float]:
    """Run trials one after the other until the search has so many, and begin none after so many CPU seconds.

    Returns:
        The earlier and the new results, and the CPU seconds of the new ones.
    """
    from oneclass.tasks.tuning.study import Study

    study, train, results = Study(home, search), search.validation_data(home).train, list(earlier)
    for result in earlier:
        study.record_trial(result)
    started = time.process_time()
    try:
        while time.process_time() - started < seconds and (batch := study.ask(trials, train)):
            for suggested in batch:
                results.append(trial(home, search, suggested.number, submit_trial(LOCAL, home, search, suggested)))
    finally:
        study.delete()
    return results, time.process_time() - started


def _confirm_on_larger_sample(home: Home, progress: Sequence[SearchProgress], left: float, executor: Executor) -> None:
    """Compare the best settings with the initial ones on a larger sample: of the best model, and of others, the better
    first, as long as the budget lasts. There is nothing to compare if the trials had the whole log.
    """
    pending: list[tuple[SearchProgress, PendingCall]] = []
    for of in sorted(progress, key=lambda of: -of.gain):
        if of.best is None or not of.best.values:
            continue
        edges, larger = (_count_edges(home, search) for search in (of.search, enlarge_search(of.search)))
        seconds = (of.outcomes[0].seconds + of.best.seconds) * larger / edges
        if larger <= edges:
            continue
        if pending and seconds > left:
            of.stopped = "; ".join(filter(None, [of.stopped, "no time was left for a larger sample"]))
            continue
        left -= seconds
        call = executor.submit(confirm_settings, home, of.search, of.best, label=f"{of.search.model}: larger sample")
        pending.append((of, call))
    for of, call in pending:
        of.confirmed, of.check_cpu_seconds = call.result()


def confirm_settings(home: Home, search: Search, best: TrialOutcome) -> tuple[list[TrialOutcome], float]:
    """Evaluate the initial settings and the best of a search on a larger sample; return the CPU seconds too."""
    started = time.process_time()
    larger, outcomes = enlarge_search(search), list[TrialOutcome]()
    for number, values in enumerate(({}, best.values), NUM_TRIALS + 1):
        trial = Trial(number, {}, values, {}, limit_seconds(outcomes[0] if outcomes else None))
        outcomes.append(submit_trial(LOCAL, home, larger, trial).result().outcome)
        log_outcome(larger, outcomes[-1], best_outcome(outcomes))
    return outcomes, time.process_time() - started


def enlarge_search(search: Search) -> Search:
    """Return the search with more of the log's users and items."""
    return replace(search, edges=MAX_CHECK_EDGES, items=search.items and MAX_CHECK_ITEMS)
