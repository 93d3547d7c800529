"""Directed linear models, which learn from the order of likes that one item comes before another.

`pairs` sums over the pairs of each history; `transitions` counts them, and `slist` solves a regression for them.
"""
