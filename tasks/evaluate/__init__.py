"""The evaluate stage: full rankings of every fitted model, on validation and test.

`stage` is the sequence, `jobs` the batches of users, `ranking` the rankings, `calibration` evaluates the
probabilities, `tables` writes the rows, or copies those of an earlier run.
"""

from oneclass.tasks.evaluate.ranking import rank_part_targets
from oneclass.tasks.evaluate.stage import evaluate, evaluate_task

__all__ = ["evaluate", "evaluate_task", "rank_part_targets"]
