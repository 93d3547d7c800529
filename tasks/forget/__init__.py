"""Forget users: remove every trace of them from a home.

Rows of the warehouse and lines of the landing folder go; what was computed from them is deleted and made anew by a run
of all stages (`flows/forget_flow.py`).
"""
