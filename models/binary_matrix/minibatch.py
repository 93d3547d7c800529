"""The records that a minibatch passes to the kernels: its entries, their grouping by vertex, and the side that
moves.
"""

from typing import NamedTuple

import numpy as np

from oneclass.models.numerics.adjacency import group_by_vertex
from oneclass.models.numerics.partition import partition_rows

NOISE_STRIDE = 8  # the noise is estimated from every eighth entry
SHARDS = 16  # runs of vertices, each with its own sums


class Grouping(NamedTuple):
    """The entries of a minibatch by the vertices of one side.

    Attributes:
        starts, order: the result of `models.numerics.adjacency.group_by_vertex`.
        bounds: int64 (SHARDS + 1,), runs of vertices with about equal numbers of entries.
    """

    starts: np.ndarray
    order: np.ndarray
    bounds: np.ndarray


class Entries(NamedTuple):
    """The entries of a minibatch, for the update of one side; all arrays are (entries,).

    Attributes:
        others: int32, the vertex of the other side.
        ones: bool, whether the entry is a one.
        weights: float32, the scaling constants for the parameters that are updated.
        means, twice_lambdas: float32, E a and 2 lambda at the best xi.
        watched: bool, whether the noise is estimated from the entry: every eighth of a minibatch.
    """

    others: np.ndarray
    ones: np.ndarray
    weights: np.ndarray
    means: np.ndarray
    twice_lambdas: np.ndarray
    watched: np.ndarray


class UpdatedSide(NamedTuple):
    """The side that a step moves.

    Attributes:
        own: its table before the minibatch.
        moved: the table into which the new rows are written.
        prior_precision: the prior precision of its factors.
        p: float64 (vertices,), p(i).
        updates: int64 (vertices,), the number of updates of each vertex; increased by the step.
    """

    own: np.ndarray
    moved: np.ndarray
    prior_precision: float
    p: np.ndarray
    updates: np.ndarray


def group_entries(vertices: np.ndarray, count: int) -> Grouping:
    """The grouping of entries by their vertices, of which there are `count`."""
    starts, order = group_by_vertex(vertices, count)
    return Grouping(starts, order, partition_rows(starts, SHARDS))
