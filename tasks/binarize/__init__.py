"""Stage `binarize`: turn events into the edges of the observed graph G, with dense user and item indices."""

from oneclass.tasks.binarize.stage import TABLES, Binarized, BinarizeSettings, binarize
from oneclass.tasks.orchestration.stage_task import stage_task

binarize_task = stage_task(binarize)

__all__ = ["TABLES", "BinarizeSettings", "Binarized", "binarize", "binarize_task"]
