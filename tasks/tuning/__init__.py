"""Tuning: searches of a model's declared search space with Optuna, evaluated on validation users or edges only.

`study` loads Optuna and SQLAlchemy, which most runs do not need: their searches are stored.
"""

from oneclass.tasks.tuning.search import Search, TrialOutcome, ValidationData, load_validation
from oneclass.tasks.tuning.trial import record_pending_trial, submit_trial, trial_task

__all__ = [
    "Search",
    "TrialOutcome",
    "ValidationData",
    "load_validation",
    "record_pending_trial",
    "submit_trial",
    "trial_task",
]
