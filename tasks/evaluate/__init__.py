"""The evaluate stage: full rankings of every fitted model, on validation and test.

`stage` has the order, `calls` what is judged for some users at a time, `ranks` the rankings, `like`, `considered` and `truth` judge the
probabilities, `tables` makes the rows.
"""

from oneclass.tasks.evaluate.ranking import rank_part_targets
from oneclass.tasks.evaluate.stage import evaluate, evaluate_task

__all__ = ["evaluate", "evaluate_task", "rank_part_targets"]
