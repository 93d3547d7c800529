"""The stores of a home: warehouse, matrices, fits, publications, runs, and their garbage collection.

Stages read and write files only through this package.
"""
