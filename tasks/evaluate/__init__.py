"""The evaluate stage: full rankings of every fitted model, on validation and test.

`stage` has the order, `calls` what is judged for some users at a time, `ranks` the rankings, `like`, `considered` and `truth` judge the
probabilities, `tables` makes the rows.
"""

from tasks.evaluate.ranks import rank
from tasks.evaluate.stage import evaluate, evaluate_task

__all__ = ["evaluate", "evaluate_task", "rank"]
