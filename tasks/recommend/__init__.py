"""Recommendations from what is published, for any history: no Prefect, no warehouse, a millisecond each.

`recommender` is asked; `names` turns ids into histories, `ranking` ranks, `frames` and `text` show the answer.
"""

from oneclass.tasks.recommend.recommender import Recommender, load
from oneclass.tasks.recommend.vocabulary import UnknownItems

__all__ = ["Recommender", "UnknownItems", "load"]
