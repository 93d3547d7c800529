"""One trial: a fit with the suggested settings, evaluated on the validation users and recorded in the study."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from prefect import Task
from prefect.cache_policies import NO_CACHE

from oneclass.models.base import Model
from oneclass.models.evaluation import metrics
from oneclass.models.evaluation.metrics import Mean
from oneclass.models.fit_options import Epoch
from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks import memory_errors
from oneclass.tasks.cluster import Executor, PendingCall
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate.ranking import TargetRankMetrics, rank_targets_by_score
from oneclass.tasks.stores import resources
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part
from oneclass.tasks.tuning.search import (
    Search,
    Trial,
    TrialOutcome,
    TrialResult,
    ValidationData,
    format_setting,
    limit_bytes,
)

logger = logging.getLogger(__name__)

CHECKPOINTS = (1 / 8, 1 / 4, 1 / 2)  # shares of the epochs, the same in every trial, so that trials can be compared
MIN_USERS = 50  # a trial is never pruned on fewer users than this
SCORES_PER_EDGE = 2  # scores computed and ranked in the time that an epoch spends on one edge; a low estimate
FOLD_IN_COST = 3  # upper estimate of the cost of folding in one user, over the cost of a fit per training user


def submit_trial(executor: Executor, home: Home, search: Search, trial: Trial) -> PendingCall:
    """Submit a trial, whose result is a `TrialResult`."""
    data, kind = search.validation_data(home), MODELS[search.model]
    try:
        memory = kind.estimate_cost(search.settings_of(trial.values, data), LogSize.of(data.train)).bytes
    except (ValueError, ArithmeticError):
        memory = 0  # the model refuses the settings, so the trial will fail
    label = f"{search.model}: trial {trial.number}"
    return executor.submit(run_trial_fit, home, search, trial, label=label, memory=memory)


def run_trial_fit(home: Home, search: Search, trial: Trial) -> TrialResult:
    """Fit and evaluate a trial.

    A trial fails if the model refuses the settings, if its scores cannot be ranked, or if memory is short, here or on
    the whole log.
    """

    def make_model(settings: ModelSettings) -> Model:
        return MODELS[search.model](settings, seed=search.seed, threads=home.limits.threads)

    return fit_trial(search, trial, list(search.iterate_folds(home)), make_model, home.absolute().spill)


def fit_trial(
    search: Search,
    trial: Trial,
    folds: Sequence[ValidationData],
    make_model: Callable[[ModelSettings], Model],
    scratch: Path | None = None,
) -> TrialResult:
    """Fit and evaluate a trial on validation data in memory, as `run_trial_fit` does.

    Args:
        scratch: as in `FitOptions`.
    """
    settings = {**search.start.model_dump(mode="json"), **trial.values}
    started, checkpoints = time.perf_counter(), None
    try:
        chosen = search.settings_of(trial.values, folds[0])
        settings = chosen.model_dump(mode="json")
        _check_memory(search, chosen)
        models = [make_model(chosen) for _ in folds]
        if models[0].is_iterative and len(folds) == 1:
            checkpoints = _Checkpoints(models[0], folds[0], trial.medians)
        for model, data in zip(models, folds, strict=True):
            # A fold's users are in the table, so they stop no fit early, here or in training.
            stops = data.part.rows is None and len(folds) == 1
            options = data.fit_options(scratch, stops=stops)
            options = replace(options, on_epoch=partial(_watch_fit, started, trial.max_seconds, checkpoints))
            needed = model.estimate_cost(chosen, LogSize.of(data.train)).bytes
            with memory_errors.guard_model_memory(f"tune: {search.model}", needed):
                model.fit(data.train, options)
        ended: dict[str, Any] = {"seconds": time.perf_counter() - started}
        mean, score = evaluate_model(models, [data.part for data in folds], search.metric)
        ended |= {"state": "done", "value": mean.value, "standard_error": mean.standard_error, "score": score}
    except _TrialPruned as pruned:
        ended = {"state": "pruned", "value": pruned.value, "note": str(pruned)}
    except (ValueError, ArithmeticError, MemoryError, OneclassError) as error:
        ended = {"state": "failed", "note": " ".join(f"{error or type(error).__name__}".split())}
    ended.setdefault("seconds", time.perf_counter() - started)
    spent, reached = (checkpoints.seconds, checkpoints.values) if checkpoints else (0.0, {})
    outcome = TrialOutcome(trial.number, settings=settings, values=trial.values, checkpoint_seconds=spent, **ended)
    return TrialResult(trial, outcome, reached)


def record_pending_trial(home: Home, search: Search, number: int, pending: PendingCall) -> TrialResult:
    """Wait for a submitted trial and record it in the study; `number` is for the name of a task run."""
    from oneclass.tasks.tuning.study import Study

    study, result = Study(home, search), pending.result()
    study.record_trial(result)
    log_outcome(search, result.outcome, study.best())
    return result


def _check_memory(search: Search, settings: ModelSettings) -> None:
    """Refuse settings whose fit on the whole log would need far more memory than that of the initial settings."""
    if search.whole is not None and settings != search.start:
        estimate = MODELS[search.model].estimate_cost
        initial, needed = (estimate(of, search.whole).bytes for of in (search.start, settings))
        if needed > limit_bytes(initial):
            sizes = [resources.format_size(size) for size in (needed, initial)]
            raise MemoryError(f"a fit on the whole log would need {sizes[0]}, that of the initial settings {sizes[1]}")


def evaluate_model(models: Sequence[Model], parts: Sequence[Part], metric: str) -> tuple[Mean, str]:
    """Return the metric of the best of a model's scores, over the users of all parts, and the name of that score.

    Args:
        models: the model as fitted for each part.
    """
    ranked = [rank_targets_by_score(model, part) for model, part in zip(models, parts, strict=True)]
    with_users = [ranks for ranks in ranked if ranks]
    means = {}
    for score in with_users[0]:
        of_users = TargetRankMetrics.concatenate([ranks[score] for ranks in with_users]).of_users
        means[score] = metrics.average_over_users(of_users)[metric]
    best = max(means, key=lambda score: means[score].value)
    return means[best], best


class _TrialPruned(Exception):
    """Raised to stop a fit that is worse, or takes far longer, than earlier trials."""

    def __init__(self, note: str, value: float | None = None) -> None:
        super().__init__(note)
        self.value = value


def _watch_fit(started: float, limit: float, checkpoints: "_Checkpoints | None", epoch: Epoch) -> None:
    """Evaluate a running fit after an epoch, or stop it if it has passed its limit, in seconds without evaluations."""
    spent = time.perf_counter() - started - (checkpoints.seconds if checkpoints else 0.0)
    if spent > limit and epoch.number < epoch.of:
        raise _TrialPruned(f"stopped after {spent:.0f} s, at epoch {epoch.number} of {epoch.of}")
    if checkpoints:
        checkpoints(epoch)


@dataclass
class _Checkpoints:
    """Evaluates a running fit, and prunes it when it falls below the median of the trials of earlier batches.

    The checkpoints and their users depend on counts only, never on measured time, so that a study can be repeated
    exactly. The number of users keeps the cost of all checkpoints at a fraction of the fit's.

    Attributes:
        medians: by percent of the epochs; compared with the fit's best value so far.
        values: the metric at each checkpoint so far, by percent of the epochs.
        seconds: wall time of all checkpoints so far.
    """

    model: Model
    validation: ValidationData
    medians: Mapping[int, float]
    values: dict[int, float] = field(default_factory=dict)
    seconds: float = field(default=0.0)

    def __call__(self, epoch: Epoch) -> None:
        reached = [share for share in CHECKPOINTS if epoch.number == int(np.ceil(share * epoch.of)) < epoch.of]
        if not reached:
            return
        started = time.perf_counter()
        part = sample_users(self.validation.part, self._affordable_users(epoch.of))
        mean, _ = evaluate_model([self.model], [part], self.validation.metric)
        self.seconds += time.perf_counter() - started
        percent = int(100 * reached[-1])
        self.values[percent] = mean.value
        if max(self.values.values()) < self.medians.get(percent, -np.inf):
            raise _TrialPruned(f"stopped at {percent} %", mean.value)

    def _affordable_users(self, epochs: int) -> int:
        """Return the number of users to rank at each checkpoint so that all checkpoints cost about a third of the
        fit.
        """
        (users, items), share = self.validation.train.shape, 1 / (3 * len(CHECKPOINTS))
        by_scores = SCORES_PER_EDGE * epochs * self.validation.train.nnz * share / (len(self.model.score_names) * items)
        by_fold_in = users * share / FOLD_IN_COST if self.validation.part.rows is None else by_scores
        return max(MIN_USERS, int(min(by_scores, by_fold_in)))


def sample_users(part: Part, users: int) -> Part:
    """Select at most `users` users of a part that have an edge to find, spread evenly over the part."""
    with_targets = np.flatnonzero(np.diff(part.targets.indptr))
    users = min(users, len(with_targets))
    chosen = with_targets[np.arange(users) * len(with_targets) // max(users, 1)]
    rows = None if part.rows is None else part.rows[chosen]
    return Part(part.histories[chosen], part.targets[chosen], part.users[chosen], rows, seen_items=part.seen_items)


def log_outcome(search: Search, outcome: TrialOutcome, best: TrialOutcome | None) -> None:
    """Log a trial's settings, its outcome, and the best so far."""
    tried = ", ".join(f"{name} {format_setting(outcome.settings[name])}" for name in {**search.space, **outcome.values})
    if outcome.state == "done":
        end = f"{search.metric} {outcome.value:.4f} by {outcome.score}"
    elif outcome.state == "pruned":
        end = outcome.note + ("" if outcome.value is None else f", where {search.metric} was {outcome.value:.4f}")
    else:
        end = f"failed: {outcome.note}"
    so_far = f"; best so far {best.value:.4f}, trial {best.number}" if best else ""
    level = logging.WARNING if outcome.state == "failed" else logging.INFO
    logger.log(level, "trial %d (%s): %s; %.1f s%s", outcome.number, tried, end, outcome.seconds, so_far)


trial_task = Task(
    fn=record_pending_trial,
    name="trial",
    task_run_name="trial {number} of {search.model}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
