"""Sparse linear methods (Ning and Karypis 2011).

`model` has the objective, `kernels` the coordinate descent.
"""

from models.slim.model import SLIM

__all__ = ["SLIM"]
