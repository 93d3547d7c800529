"""Split: which edges are trained on, which are the known history of a held-out user, and which have to be found.

`stage` makes every protocol's roles and matrices; `liang2018` and `next_events` hold what is theirs alone,
`line_ends` the edges that come last, by which settings are chosen.
"""

from tasks.protocols import ALL_EDGES, PROTOCOLS
from tasks.split.liang2018 import LIANG2018_SEED
from tasks.split.settings import SplitSettings
from tasks.split.stage import Splits, all_edges, split, split_task

__all__ = ["ALL_EDGES", "LIANG2018_SEED", "PROTOCOLS", "SplitSettings", "Splits", "all_edges", "split", "split_task"]
