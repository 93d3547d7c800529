"""Stage `split`: divide the edges into training edges, known histories of held-out users, and targets.

`stage` writes the roles and matrices of every protocol; `protocols` has what is specific to leave_one_out, next_events and
liang2018, `validation` the latest edges that settings are chosen by, `explicit_negatives` the explicit negatives.
"""

from oneclass.tasks.protocols import ALL_EDGES, PROTOCOLS
from oneclass.tasks.split.protocols import LIANG2018_SEED
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import Splits, split, split_task, store_all_edges

__all__ = [
    "ALL_EDGES",
    "LIANG2018_SEED",
    "PROTOCOLS",
    "SplitSettings",
    "Splits",
    "split",
    "split_task",
    "store_all_edges",
]
