"""Re-ranking of candidates for variety: `rerank` picks lists by one of three `METHODS`.

`vectors` gives items unit vectors whose products are their similarities.
"""

from oneclass.models.reranking.constrained import select_diverse_items
from oneclass.models.reranking.rerank import METHODS, rerank
from oneclass.models.reranking.vectors import project_items, unit_rows

__all__ = ["METHODS", "project_items", "rerank", "select_diverse_items", "unit_rows"]
