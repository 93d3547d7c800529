"""Degree distributions of a bipartite graph, and their maximum-likelihood fits.

`distributions` has the families; `fits` estimates their parameters and tests the fit.
"""
