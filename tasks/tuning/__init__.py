"""Tuning: a model's declared search space, searched with Optuna, judged on validation users or edges alone."""

from tasks.tuning.best_settings import table, write
from tasks.tuning.study import Outcome, Search, Study
from tasks.tuning.trial import run_trial, trial_task
from tasks.tuning.validation import Validation, validation

__all__ = [
    "Outcome",
    "Search",
    "Study",
    "Validation",
    "run_trial",
    "table",
    "trial_task",
    "validation",
    "write",
]
