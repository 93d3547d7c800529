"""A sparse approximate inverse of the items' Gram matrix, for large catalogues (Spišák et al. 2023).

`model` has the regression that it solves, `factorization` the incomplete Cholesky decomposition and its inverse.
"""

from oneclass.models.sansa.model import SANSA

__all__ = ["SANSA"]
