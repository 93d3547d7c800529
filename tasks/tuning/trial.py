"""One trial: a fit with the settings that the study asks for, judged on the validation users, and kept in the study."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from prefect import Task
from prefect.cache_policies import NO_CACHE

from models.base import Model
from models.catalogue import MODELS
from models.evaluation import metrics
from models.evaluation.metrics import Mean
from models.fitting import Epoch, FitOptions, ValidationUsers
from models.settings import ModelSettings
from tasks import machine
from tasks.cluster import Executor, PendingCall
from tasks.errors import OneclassError
from tasks.evaluate.ranks import rank_each
from tasks.stores.home import Home
from tasks.stores.matrices import Part
from tasks.tuning.best_settings import short
from tasks.tuning.search import Asked, Made, Outcome, Search
from tasks.tuning.study import Study
from tasks.tuning.validation import Validation

logger = logging.getLogger(__name__)

CHECKPOINTS = (1 / 8, 1 / 4, 1 / 2)  # shares of the epochs, the same in every trial, so that trials can be compared
LEAST_USERS = 50  # a trial is never stopped on fewer users than this
SCORES_PER_EDGE = 2  # scores computed and ranked in the time that an epoch spends on one edge, estimated low
FOLD_IN = 3  # folding in one user costs at most so many times as much as a whole fit, divided by its training users


def submit_trial(executor: Executor, home: Home, search: Search, asked: Asked) -> PendingCall:
    """Submit a trial, whose result is a `Made`."""
    judged, kind = search.judged_on(home), MODELS[search.model]
    try:
        memory = kind.fit_bytes(_settings(search, asked, judged), judged.train.shape, judged.train.nnz)
    except (ValueError, ArithmeticError):
        memory = 0  # settings that the model refuses, as whoever makes the trial will say
    label = f"{search.model}: trial {asked.number}"
    return executor.submit(make, home, search, asked, label=label, memory=memory)


def make(home: Home, search: Search, asked: Asked) -> Made:
    """Fit and judge.

    A trial fails where the model refuses the settings, where the fit ends in numbers that cannot be ranked, and where it
    takes more memory than there is.
    """
    kind, judged = MODELS[search.model], search.judged_on(home)
    settings = {**search.start.model_dump(mode="json"), **asked.values}
    began, checkpoints = time.perf_counter(), None
    try:
        chosen = _settings(search, asked, judged)
        settings = chosen.model_dump(mode="json")
        model = kind(chosen, seed=search.seed, threads=home.limits.threads)
        unseen = ValidationUsers(judged.part.histories, judged.part.targets) if judged.part.rows is None else None
        options = FitOptions(validation=unseen, negatives=judged.negatives, scratch=home.absolute().spill)
        if kind.scorable_each_epoch:
            checkpoints = _Checkpoints(model, judged, asked.medians)
            options = replace(options, on_epoch=checkpoints)
        needed = kind.fit_bytes(chosen, judged.train.shape, judged.train.nnz)
        with machine.memory_for_model(f"tune: {search.model}", needed):
            model.fit(judged.train, options)
        ended = {"seconds": time.perf_counter() - began}
        mean, score = judge(model, judged.part, search.metric)
        ended |= {"state": "done", "value": mean.value, "standard_error": mean.standard_error, "score": score}
    except _Stopped as stopped:
        ended = {"state": "pruned", "value": stopped.value, "note": f"stopped at {stopped.percent} %"}
    except (ValueError, ArithmeticError, MemoryError, OneclassError) as error:
        ended = {"state": "failed", "note": " ".join(f"{error or type(error).__name__}".split())}
    common = {
        "settings": settings,
        "values": asked.values,
        "seconds": time.perf_counter() - began,
        "checkpoint_seconds": checkpoints.seconds if checkpoints else 0.0,
    }
    return Made(asked, Outcome(asked.number, **{**common, **ended}), checkpoints.values if checkpoints else {})


def run_trial(home: Home, search: Search, number: int, pending: PendingCall) -> Outcome:
    """Wait for a submitted trial, and tell the study; `number` is for the name of a task run."""
    study, made = Study(home, search), pending.result()
    study.tell(made)
    log_outcome(search, made.outcome, study.best())
    return made.outcome


def _settings(search: Search, asked: Asked, judged: Validation) -> ModelSettings:
    return search.start.tried(asked.values, judged.train) if asked.values else search.start


def judge(model: Model, part: Part, metric: str) -> tuple[Mean, str]:
    """The metric of the best of the model's scores, and the name of that score."""
    means = {score: metrics.over_users(ranks.of_users)[metric] for score, ranks in rank_each(model, part).items()}
    best = max(means, key=lambda score: means[score].value)
    return means[best], best


class _Stopped(Exception):
    """A fit that fell behind."""

    def __init__(self, percent: int, value: float) -> None:
        super().__init__(percent, value)
        self.percent, self.value = percent, value


@dataclass
class _Checkpoints:
    """Judges a fit as it runs, and stops it when it falls behind the median of the trials of earlier rounds.

    When it judges, and on which users, depends on counts alone and never on measured time, so that a study can be
    repeated exactly. It takes as many users as keep the cost of all checkpoints at a fraction of the fit's.

    Attributes:
        medians: by percent of the epochs; the fit's best value so far is held against it.
        values: the metric at each checkpoint so far, by percent of the epochs.
        seconds: wall time of all so far.
    """

    model: Model
    judged: Validation
    medians: Mapping[int, float]
    values: dict[int, float] = field(default_factory=dict)
    seconds: float = field(default=0.0)

    def __call__(self, epoch: Epoch) -> None:
        reached = [share for share in CHECKPOINTS if epoch.number == int(np.ceil(share * epoch.of)) < epoch.of]
        if not reached:
            return
        began = time.perf_counter()
        mean, _ = judge(self.model, some_users(self.judged.part, self._affordable(epoch.of)), self.judged.metric)
        self.seconds += time.perf_counter() - began
        percent = int(100 * reached[-1])
        self.values[percent] = mean.value
        if max(self.values.values()) < self.medians.get(percent, -np.inf):
            raise _Stopped(percent, mean.value)

    def _affordable(self, epochs: int) -> int:
        """How many users can be ranked at each checkpoint so that all of them together cost about a third of the fit."""
        (users, items), share = self.judged.train.shape, 1 / (3 * len(CHECKPOINTS))
        by_scores = SCORES_PER_EDGE * epochs * self.judged.train.nnz * share / (len(self.model.score_names) * items)
        by_folding = users * share / FOLD_IN if self.judged.part.rows is None else by_scores
        return max(LEAST_USERS, int(min(by_scores, by_folding)))


def some_users(part: Part, users: int) -> Part:
    """At most `users` users of a part who have an edge to be found, spread evenly over the part."""
    with_targets = np.flatnonzero(np.diff(part.targets.indptr))
    users = min(users, len(with_targets))
    chosen = with_targets[np.arange(users) * len(with_targets) // max(users, 1)]
    rows = None if part.rows is None else part.rows[chosen]
    return Part(part.histories[chosen], part.targets[chosen], part.users[chosen], rows)


def log_outcome(search: Search, outcome: Outcome, best: Outcome | None) -> None:
    """A line of the log: what was tried, how it ended, and the best so far."""
    told = ", ".join(f"{name} {short(outcome.settings[name])}" for name in {**search.space, **outcome.values})
    if outcome.state == "done":
        end = f"{search.metric} {outcome.value:.4f} by {outcome.score}"
    elif outcome.state == "pruned":
        end = f"{outcome.note}, where {search.metric} was {outcome.value:.4f}"
    else:
        end = f"failed: {outcome.note}"
    so_far = f"; best so far {best.value:.4f}, trial {best.number}" if best else ""
    level = logging.WARNING if outcome.state == "failed" else logging.INFO
    logger.log(level, "trial %d (%s): %s; %.1f s%s", outcome.number, told, end, outcome.seconds, so_far)


trial_task = Task(
    fn=run_trial,
    name="trial",
    task_run_name="trial {number} of {search.model}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
