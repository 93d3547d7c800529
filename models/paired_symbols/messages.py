"""What blocks of users tell the items of paired symbols, and how the items move by it.

P and z of an item (eq. 6 to 8, biases included) are sums over its edges and a background that all items share. A block
has some of the edges. Its message holds its part of the sums, float32 (items, (K + 1)(K + 4) / 2): with x_i = (u_i, 1),
and w as `kernels.weighted_sums` has it at the item's old q,

    the lower triangle of sum w E[x x'], row by row,    and behind it    sum (c / 2 - w E b_i) E[x].
"""

import numpy as np
from numba import njit, prange

from models.numerics.shards import even_runs
from models.paired_symbols import kernels
from models.paired_symbols.edges import OPTIONS, express


def numbers(factors: int) -> int:
    """Of a message, for one item."""
    return (factors + 1) * (factors + 4) // 2


@njit(parallel=True, **OPTIONS)
def sum_parameters(lanes, edges, own, other, censored, message):
    """Fill `message` with a block's part.

    Args:
        edges: the `Edges` that the block has, by item.
        own: the items' rows; other: the rows of the block's users.
        censored: the `Censored` pairs of the items; their background is not used.
    """
    for shard in prange(len(edges.bounds) - 1):
        if edges.bounds[shard] < edges.bounds[shard + 1]:
            sum_shard(lanes, np.int64(shard), edges, own, other, censored, message)


@njit(**OPTIONS)
def sum_shard(lanes, shard, edges, own, other, censored, message):
    n, width = len(lanes), own.shape[1] // 2
    scratch, bias, one = kernels.workspace(n, width), n - 2, n - 1
    for item in range(edges.bounds[shard], edges.bounds[shard + 1]):
        express(own[item], n, scratch.factors)
        kernels.weighted_sums(lanes, item, edges, other, censored, scratch)
        total, at = scratch.total, 0
        for row in range(bias):
            for column in range(row):
                message[item, at + column] = total[column * width + row]
            message[item, at + row] = total[row * width + row] + total[width * width + row]
            at += row + 1
        for x in range(bias + 1):
            y = x if x < bias else one
            message[item, at + x] = total[y * width + one]
            beside = total[x * width + bias] if x < bias else total[bias * width + one]
            message[item, at + bias + 1 + x] = total[(width + 1) * width + y] - beside


def move_items(
    lanes: tuple, rows: np.ndarray, total: np.ndarray, censored: kernels.Censored, precisions: tuple[float, float]
) -> None:
    """q(v_j, b_j) of every item in place, as one pass of `kernels.update_rows`.

    Args:
        rows: of the items.
        total: float64 (items, `numbers`), the sum of the messages of all blocks.
    """
    _move_items(lanes, rows, total, even_runs(len(rows), kernels.SHARDS), censored, precisions)


@njit(parallel=True, **OPTIONS)
def _move_items(lanes, rows, total, bounds, censored, precisions):
    for shard in prange(len(bounds) - 1):
        if bounds[shard] < bounds[shard + 1]:
            _move_shard(lanes, np.int64(shard), rows, total, bounds, censored, precisions)


@njit(**OPTIONS)
def _move_shard(lanes, shard, rows, total, bounds, censored, precisions):
    """A message says of P and z what `build` takes from sums in `total`: what is in it already stays 0 there."""
    n, width, least = len(lanes), rows.shape[1] // 2, min(precisions)
    scratch, bias, one = kernels.workspace(n, width), n - 2, n - 1
    scratch.total[:] = 0
    for item in range(bounds[shard], bounds[shard + 1]):
        at = 0
        for row in range(bias):
            for column in range(row + 1):
                scratch.total[column * width + row] = total[item, at + column]
            at += row + 1
        for x in range(bias + 1):
            y = x if x < bias else one
            scratch.total[y * width + one] = total[item, at + x]
            scratch.total[(width + 1) * width + y] = total[item, at + bias + 1 + x]
        kernels.build(n, item, censored, precisions, scratch)
        kernels.solve_lifted(lanes, scratch.system, least, scratch.solution)
        kernels.keep(n, rows[item], scratch)
