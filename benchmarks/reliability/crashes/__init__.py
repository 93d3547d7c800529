"""Runs that are killed: a run stopped at each moment at which it could be, its home copied and recovered; and runs that
are killed by a signal again and again, beside a Prefect server.
"""
