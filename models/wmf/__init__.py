"""Weighted matrix factorization by alternating least squares.

`model` has the loss, `sides` the linear systems of users and of items, `kernels` their solvers; `blocks` a fit by blocks of
users, of which `worker` is one, and `sums` what these tell the items.
"""

from oneclass.models.wmf.model import WMF

__all__ = ["WMF"]
