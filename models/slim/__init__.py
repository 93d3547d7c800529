"""Sparse linear methods (Ning and Karypis 2011).

`model` has the objective, `columns` the batches of columns, `kernels` the coordinate descent.
"""

from oneclass.models.slim.model import SLIM

__all__ = ["SLIM"]
