"""Numerical tools of all families: lanes, products, Gram matrices, solvers, selection, shards, random numbers, threads.

No module here imports another room of `models/`.
"""
