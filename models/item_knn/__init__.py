"""Item neighbours: each item's score is a sum of its similarities to the items of a history (Sarwar et al. 2001)."""

from oneclass.models.item_knn.model import ItemKNN

__all__ = ["ItemKNN"]
