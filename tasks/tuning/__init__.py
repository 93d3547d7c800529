"""Tuning: searches of a model's declared search space with Optuna, evaluated on validation users or edges only."""

from oneclass.tasks.tuning.search import Search, TrialOutcome, ValidationData, load_validation
from oneclass.tasks.tuning.study import Study, format_trials, write_best_settings
from oneclass.tasks.tuning.trial import record_pending_trial, submit_trial, trial_task

__all__ = [
    "Search",
    "Study",
    "TrialOutcome",
    "ValidationData",
    "format_trials",
    "load_validation",
    "record_pending_trial",
    "submit_trial",
    "trial_task",
    "write_best_settings",
]
