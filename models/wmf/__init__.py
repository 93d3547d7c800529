"""Weighted matrix factorization by alternating least squares.

`model` has the loss, `normal_equations` the linear systems of users and of items, `kernels` their solvers.
"""

from oneclass.models.wmf.model import WMF

__all__ = ["WMF"]
