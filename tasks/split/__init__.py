"""Split: which edges are trained on, which are the known history of a held-out user, and which have to be found.

`stage` makes every protocol's roles and matrices; `liang2018` and `next_events` hold what is theirs alone,
`line_ends` the edges that come last, by which settings are chosen.
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
