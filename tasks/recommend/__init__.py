"""Recommendations from what is published, for any history: no Prefect, no warehouse, a millisecond each.

`recommender` is asked; `names` turns ids into histories, `ranking` ranks, `frames` and `text` show the answer.
"""

from tasks.recommend.names import UnknownItems
from tasks.recommend.recommender import Recommender, load

__all__ = ["Recommender", "UnknownItems", "load"]
