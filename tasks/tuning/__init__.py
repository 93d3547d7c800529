"""Tuning: a model's declared search space, searched with Optuna, judged on validation users or edges alone."""

from models.search_space import SearchSpace
from tasks.tuning.best_settings import table, write
from tasks.tuning.search import Outcome, Search
from tasks.tuning.study import Study
from tasks.tuning.trial import run_trial, submit_trial, trial_task
from tasks.tuning.validation import Validation, validation

__all__ = [
    "Outcome",
    "Search",
    "SearchSpace",
    "Study",
    "Validation",
    "run_trial",
    "submit_trial",
    "table",
    "trial_task",
    "validation",
    "write",
]
