"""Attributes of items and users: features, prior means of a model's factors, and the scores of new items.

No module here imports another package of `models/` but `numerics`.
"""
