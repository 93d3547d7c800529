"""Numerics shared by all families: SIMD, products, Gram matrices, solvers, selection, partitions, random numbers,
threads.

No module here imports another package of `models/`.
"""
