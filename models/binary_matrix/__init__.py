"""Stochastic inference for binary matrices, in which every zero is an observation.

`model` has the bound; `sampling` draws the entries, `inference` takes the steps, and `kernels` has the loops.
"""

from oneclass.models.binary_matrix.model import BinaryMatrix

__all__ = ["BinaryMatrix"]
