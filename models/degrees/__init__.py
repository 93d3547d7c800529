"""Degree laws of a bipartite graph, and their maximum-likelihood fits.

`laws` has the families, `fits` the estimates and how well they fit.
"""
