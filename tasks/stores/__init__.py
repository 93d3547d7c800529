"""Everything that is kept: the home, the warehouse, matrices, fits, runs, and what is removed when.

A stage reads and writes only through this room.
"""
