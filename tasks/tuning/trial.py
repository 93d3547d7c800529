"""One trial: a fit with the settings that the study asks for, judged on the validation users."""

import logging
import time
from dataclasses import dataclass, field, replace

import numpy as np
import optuna
from prefect import Task
from prefect.cache_policies import NO_CACHE

from models.base import Model
from models.catalogue import MODELS
from models.evaluation import metrics
from models.evaluation.metrics import Mean
from models.fitting import Epoch, FitOptions, ValidationUsers
from models.memory import fit_bytes
from tasks import machine
from tasks.errors import OneclassError
from tasks.evaluate.ranks import rank_each
from tasks.stores.home import Home
from tasks.stores.matrices import Part
from tasks.tuning.best_settings import short
from tasks.tuning.study import Outcome, Search, Study
from tasks.tuning.validation import Validation

logger = logging.getLogger(__name__)

CHECKPOINTS = (1 / 8, 1 / 4, 1 / 2)  # shares of the epochs, the same in every trial, so that trials can be compared
LEAST_USERS = 50  # a trial is never stopped on fewer users than this
SCORES_PER_EDGE = 2  # scores computed and ranked in the time that an epoch spends on one edge, estimated low
FOLD_IN = 3  # folding in one user costs at most so many times as much as a whole fit, divided by its training users


def run_trial(home: Home, search: Search) -> Outcome:
    """Ask the study for settings, fit and judge them, and tell the study.

    A trial fails where the model refuses the settings, where the fit ends in numbers that cannot be ranked, and where it
    takes more memory than there is.
    """
    study, kind = Study(home, search), MODELS[search.model]
    judged = search.judged_on(home)
    number, beside = len(study.outcomes()) + 1, study.beside()
    trial = study.ask()
    whole = trial.user_attrs.get("settings")
    values = {} if whole else {**beside, **trial.params}
    settings = whole or {**search.start.model_dump(mode="json"), **values}
    began, checkpoints = time.perf_counter(), None
    try:
        chosen = kind.Settings(**whole) if whole else search.start.tried(values, judged.train)
        settings = chosen.model_dump(mode="json")
        model = kind(chosen, seed=search.seed, threads=home.limits.threads)
        unseen = ValidationUsers(judged.part.histories, judged.part.targets) if judged.part.rows is None else None
        options = FitOptions(validation=unseen, scratch=home.absolute().spill)
        if kind.scorable_each_epoch:
            checkpoints = _Checkpoints(model, judged, trial)
            options = replace(options, on_epoch=checkpoints)
        needed = fit_bytes(kind, chosen, judged.train.shape, judged.train.nnz)
        with machine.memory_for_model(f"tune: {search.model}", needed):
            model.fit(judged.train, options)
        ended = {"seconds": time.perf_counter() - began}
        mean, score = judge(model, judged.part, search.metric)
        ended |= {"state": "done", "value": mean.value, "standard_error": mean.standard_error, "score": score}
    except optuna.TrialPruned:
        ended = {"state": "pruned", "value": checkpoints.value, "note": f"stopped at {checkpoints.percent} %"}
    except (ValueError, ArithmeticError, MemoryError, OneclassError) as error:
        ended = {"state": "failed", "note": " ".join(f"{error or type(error).__name__}".split())}
    spent = checkpoints.seconds if checkpoints else 0.0
    common = {
        "settings": settings,
        "values": values,
        "seconds": time.perf_counter() - began,
        "checkpoint_seconds": spent,
    }
    outcome = Outcome(number, **{**common, **ended})
    study.tell(trial, outcome)
    _log(search, outcome, study.best())
    return outcome


def judge(model: Model, part: Part, metric: str) -> tuple[Mean, str]:
    """The metric of the best of the model's scores, and the name of that score."""
    means = {score: metrics.over_users(ranks.of_users)[metric] for score, ranks in rank_each(model, part).items()}
    best = max(means, key=lambda score: means[score].value)
    return means[best], best


@dataclass
class _Checkpoints:
    """Judges a fit as it runs, and stops it when it falls behind the median of the earlier trials.

    When it judges, and on which users, depends on counts alone and never on measured time, so that a study can be
    repeated exactly. It takes as many users as keep the cost of all checkpoints at a fraction of the fit's.

    Attributes:
        percent: how far the fit was at the last checkpoint.
        value: the metric there.
        seconds: wall time of all so far.
    """

    model: Model
    judged: Validation
    trial: optuna.Trial
    percent: int = 0
    value: float | None = None
    seconds: float = field(default=0.0)

    def __call__(self, epoch: Epoch) -> None:
        reached = [share for share in CHECKPOINTS if epoch.number == int(np.ceil(share * epoch.of)) < epoch.of]
        if not reached:
            return
        began = time.perf_counter()
        mean, _ = judge(self.model, some_users(self.judged.part, self._affordable(epoch.of)), self.judged.metric)
        self.seconds += time.perf_counter() - began
        self.percent, self.value = int(100 * reached[-1]), mean.value
        self.trial.report(mean.value, self.percent)
        if self.trial.should_prune():
            raise optuna.TrialPruned

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


def _log(search: Search, outcome: Outcome, best: Outcome | None) -> None:
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


def numbered(home: Home, search: Search, number: int) -> Outcome:
    """`run_trial`; `number` is for the name of a task run."""
    return run_trial(home, search)


trial_task = Task(
    fn=numbered,
    name="trial",
    task_run_name="trial {number} of {search.model}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
