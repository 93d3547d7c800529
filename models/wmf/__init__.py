"""Weighted matrix factorization by alternating least squares.

`model` has the loss, `sides` a half-step, `kernels` its solvers.
"""

from models.wmf.model import WMF

__all__ = ["WMF"]
