"""One trial: a fit with the suggested settings, evaluated on the validation users."""

import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from oneclass.models.base import Model
from oneclass.models.fit_options import Epoch, FitOptions, ValidationUsers
from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.tasks import memory_errors
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.search import Search, describe_trials, find_best_trial, format_setting
from oneclass.tasks.tuning.validation import ValidationData, evaluate_model

logger = logging.getLogger(__name__)

MAX_SECONDS_RATIO, MIN_LIMIT_SECONDS = 8, 20.0  # limit of a run's own trials: over the first one, and at least


def run_trial(home: Home, search: Search, trial: optuna.Trial) -> FrozenTrial:
    """Fit and evaluate a trial on the validation data of a home, as `fit_trial` does."""
    kind, spill = MODELS[search.model], home.absolute().spill
    return fit_trial(search, trial, search.load_folds(home), kind, home.limits.threads, spill)


def fit_trial(
    search: Search,
    trial: optuna.Trial,
    folds: Sequence[ValidationData],
    kind: type[Model],
    threads: int,
    scratch: Path | None = None,
) -> FrozenTrial:
    """Fit and evaluate a trial of a model of class `kind` on validation data in memory.

    A trial fails if the model refuses the settings, if its scores cannot be ranked, or if memory is short, here or on
    the whole log. In a run's own search it is pruned if it takes far longer than the first.

    Returns:
        The ended trial. Its attributes are `values`, all `settings`, the `score` that reached its value, the
        `standard_error` over users, `seconds` of wall time, and a `note` with the reason if it was pruned or failed.
    """
    started, first, limit = time.perf_counter(), trial.study.trials[0], math.inf
    if search.whole and first.state == TrialState.COMPLETE:
        limit = max(MIN_LIMIT_SECONDS, MAX_SECONDS_RATIO * first.user_attrs["seconds"])

    def watch(epoch: Epoch) -> None:
        seconds = time.perf_counter() - started
        if seconds > limit and epoch.number < epoch.of:
            raise optuna.TrialPruned(f"stopped after {seconds:.0f} s, at epoch {epoch.number} of {epoch.of}")

    value, error, score, note, values = None, None, "", "", trial.user_attrs["values"]
    settings = {**search.start.model_dump(mode="json"), **values}
    try:
        chosen = search.start.with_trial_values(values, folds[0].train)
        settings = chosen.model_dump(mode="json")
        models = [kind(chosen, seed=search.seed, threads=threads) for _ in folds]
        for model, data in zip(models, folds, strict=True):
            # A fold's users are in the table, so they stop no fit early, here or in training.
            stops = data.part.rows is None and len(folds) == 1
            options = FitOptions(
                validation=ValidationUsers(data.part.histories, data.part.targets) if stops else None,
                explicit_negatives=data.explicit_negatives,
                item_features=data.item_features,
                scratch=scratch,
                on_epoch=watch,
            )
            # Settings other than the initial ones must fit into memory on the whole log too.
            size = search.whole if search.whole and values else LogSize.of(data.train)
            with memory_errors.guard_model_memory(f"tune: {search.model}", model.estimate_cost(chosen, size).bytes):
                model.fit(data.train, options)
        mean, score = evaluate_model(models, [data.part for data in folds], search.metric)
        value, error, state = mean.value, mean.standard_error, TrialState.COMPLETE
    except optuna.TrialPruned as pruned:
        state, note = TrialState.PRUNED, str(pruned)
    except (ValueError, ArithmeticError, MemoryError, OneclassError) as failure:
        state, note = TrialState.FAIL, " ".join(f"{failure or type(failure).__name__}".split())
    recorded = {"settings": settings, "score": score, "standard_error": error, "note": note}
    for name, of in {**recorded, "seconds": time.perf_counter() - started}.items():
        trial.set_user_attr(name, of)
    return trial.study.tell(trial, value, state)


def log_trial(search: Search, ended: Sequence[FrozenTrial]) -> None:
    """Log the settings of the last trial, how it ended, and the best so far."""
    row, best = describe_trials(ended)[-1], find_best_trial(ended)
    names = {**search.space, **ended[-1].user_attrs["values"]}
    tried = ", ".join(f"{name} {format_setting(row['settings'][name])}" for name in names)
    end = f"{search.metric} {format_setting(row['value'])} {row['note']}".strip()
    level = logging.WARNING if row["state"] == "failed" else logging.INFO
    so_far = format_setting(best.value if best else None)
    logger.log(level, "trial %d (%s): %s, %s; best so far %s", row["number"], tried, row["state"], end, so_far)
