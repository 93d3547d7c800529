"""Bayesian personalized ranking (Rendle and others 2009), negatives drawn uniformly or by popularity.

`model` has the criterion and the settings, `training` the passes and when to stop, `kernels` the
steps.
"""

from oneclass.models.bpr.model import BPRPopularity, BPRUniform

__all__ = ["BPRPopularity", "BPRUniform"]
