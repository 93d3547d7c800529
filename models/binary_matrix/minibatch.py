"""What a minibatch hands to the kernels: its entries, how they group by rows and by columns, and what moves."""

from typing import NamedTuple

import numpy as np

from models.numerics.adjacency import grouped
from models.numerics.shards import runs

SHARDS = 16  # runs of vertices with sums of their own


class Grouping(NamedTuple):
    """The entries of a minibatch by the vertices of one side.

    Attributes:
        starts, order: `models.numerics.adjacency.grouped` of the entries.
        bounds: int64 (SHARDS + 1,), runs of vertices with about as many entries each.
    """

    starts: np.ndarray
    order: np.ndarray
    bounds: np.ndarray


class Entries(NamedTuple):
    """The entries of a minibatch, as one side sees them; arrays (entries,).

    Attributes:
        others: int32, the other side's vertex.
        ones: bool, what stands there.
        weights: float32, the scaling constants of what is updated.
        means, twice_lambdas: float32, E a and 2 lambda at the best xi.
    """

    others: np.ndarray
    ones: np.ndarray
    weights: np.ndarray
    means: np.ndarray
    twice_lambdas: np.ndarray


class Moving(NamedTuple):
    """The side that a step moves.

    Attributes:
        own: its table as it was before the minibatch.
        moved: the table that gets the new rows.
        prior_precision: of its factors.
        p: float64 (vertices,), p(i).
        updates: int64 (vertices,), updates that each vertex has had; counted up.
    """

    own: np.ndarray
    moved: np.ndarray
    prior_precision: float
    p: np.ndarray
    updates: np.ndarray


def grouping(vertices: np.ndarray, count: int) -> Grouping:
    """The entries that lie at these vertices, out of `count`."""
    starts, order = grouped(vertices, count)
    return Grouping(starts, order, runs(starts, SHARDS))
