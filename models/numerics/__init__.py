"""What every family computes with: products, Gram matrices, inverses, selection, shards, random numbers, threads.

Knows nothing of users, items or models.
"""
