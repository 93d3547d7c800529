"""What every family computes with: lanes, products, Gram matrices, solvers, selection, shards, random numbers, threads.

Imports no other room.
"""
