"""Sparse linear methods (Ning and Karypis 2011).

`model` has the objective, `kernels` the coordinate descent, `columns` what it is told and gives, `runs` the fit on many workers.
"""

from oneclass.models.slim.model import SLIM

__all__ = ["SLIM"]
