"""Tuning: a model's declared search space, searched with Optuna, judged on validation users or edges alone."""

from models.search_space import SearchSpace
from tasks.tuning.best_settings import table, write
from tasks.tuning.study import Outcome, Search, Study
from tasks.tuning.trial import run_trial, trial_task
from tasks.tuning.validation import Validation, validation

__all__ = [
    "Outcome",
    "Search",
    "SearchSpace",
    "Study",
    "Validation",
    "run_trial",
    "table",
    "trial_task",
    "validation",
    "write",
]
