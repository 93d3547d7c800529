"""Weighted matrix factorization by alternating least squares.

`model` has the loss, `sides` the linear systems of users and of items, `kernels` their solvers.
"""

from models.wmf.model import WMF

__all__ = ["WMF"]
