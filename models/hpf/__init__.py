"""Hierarchical Poisson factorization (Gopalan, Hofman and Blei).

`model` has the generative model and the bound, `ascent` the coordinate updates and their loops.
"""

from oneclass.models.hpf.model import HPF

__all__ = ["HPF"]
