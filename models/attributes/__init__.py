"""Attributes of items: features, and the scores of new items.

No module here imports another package of `models/` but `numerics`.
"""
