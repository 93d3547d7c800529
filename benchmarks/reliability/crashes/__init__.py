"""Runs that are killed, once at each of their moments or again and again, and the recovery of their homes."""
