"""The evaluate stage: full rankings of every fitted model, on validation and test.

`stage` has the order, `tables` the rows, `like` and `truth` judge the probabilities.
"""

from tasks.evaluate.stage import evaluate, evaluate_task, rank

__all__ = ["evaluate", "evaluate_task", "rank"]
