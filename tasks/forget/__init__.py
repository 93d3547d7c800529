"""Forget users: take them out of the files and the warehouse of a home."""
