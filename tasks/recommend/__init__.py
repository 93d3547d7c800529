"""Recommend from the publication for any history, without Prefect or the warehouse, in a millisecond each.

`recommender` has the interface, `vocabulary` maps ids to columns, `ranking` ranks, and `text` formats the result.
"""

from oneclass.tasks.recommend.recommender import Recommender, load
from oneclass.tasks.recommend.vocabulary import UnknownItems

__all__ = ["Recommender", "UnknownItems", "load"]
