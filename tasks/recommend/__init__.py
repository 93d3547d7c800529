"""Recommendations from what is published, for any history: no Prefect, no warehouse, a millisecond each.

`recommender` answers; `frames` are its answers as Polars frames.
"""

from tasks.recommend.recommender import Recommender, UnknownItems, load

__all__ = ["Recommender", "UnknownItems", "load"]
