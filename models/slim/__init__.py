"""Sparse linear methods (Ning and Karypis 2011).

`model` has the objective, `kernels` the coordinate descent.
"""

from models.slim.model import Slim

__all__ = ["Slim"]
