"""Re-ranking of candidates for variety: `rerank` picks lists by one of three `METHODS`."""

from oneclass.models.reranking.rerank import METHODS, project_items, rerank, select_diverse_items, unit_rows

__all__ = ["METHODS", "project_items", "rerank", "select_diverse_items", "unit_rows"]
