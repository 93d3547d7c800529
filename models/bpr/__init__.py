"""Bayesian personalized ranking (Rendle and others 2009), negatives drawn uniformly or by popularity.

`model` has the criterion, the settings and the passes, `kernels` the steps.
"""

from oneclass.models.bpr.model import BPRPopularity, BPRUniform

__all__ = ["BPRPopularity", "BPRUniform"]
