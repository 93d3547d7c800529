"""Degree laws of a bipartite graph, and their maximum-likelihood fits.

`laws` has the families of laws; `fits` estimates their parameters and tests the fit.
"""
