"""What blocks of users and the items tell each other (Paquet and Koenigstein 2014, section 5.2 and eq. 21).

The paper cuts the graph by items; here it is cut by users, which its footnote 1 finds smaller where there are fewer
items. So the natural parameters P_n and z_n of an item are sums over blocks, and a block's message holds its part of
them, float32 (items, (K + 1)(K + 4) / 2): with w = 2 lambda(xi) and x = [u_m, 1], over the edges of H that the block
has,

    the lower triangle of sum w E[x x'], row by row,    and behind it    sum (g - 1/2 - w E[b_m]) E[x].

The last row is of the item's bias, E[b_n] times which the factors need. The update of the bias (eq. 19) has a message
of its own, float64 (items, 2), the sums of its P and z.
"""

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.partition import partition_evenly
from oneclass.models.numerics.simd import pad_width
from oneclass.models.random_graph.edges import (
    OPTIONS,
    add_bias_edges,
    add_edges,
    allocate_workspace,
    load_own_vertex,
    ones_start,
    pulls_start,
    spreads_start,
)
from oneclass.models.random_graph.kernels import update_vertex
from oneclass.models.random_graph.posterior import VertexPosterior


def message_size(factors: int) -> int:
    """Of a message, for one item: (K + 1)(K + 2) / 2 of P and K + 1 of z."""
    return (factors + 1) * (factors + 4) // 2


@njit(parallel=True, **OPTIONS)
def sum_parameters(items, table, likes, negatives, bounds):
    """The message of a block of users.

    Args:
        items: float32 mean (N, K), precision (N, K), bias mean (N,), bias precision (N,).
        table: packed rows of the block's users.
        likes, negatives: (starts int64 (N + 1,), users int32), the two parts of the block's hidden graph, by item.
        bounds: int64, where the shards of items begin and end.
    """
    factors = items[0].shape[1]
    stride, ones = pad_width(factors + 1), ones_start(factors)
    pulls, spreads = pulls_start(factors), spreads_start(factors)
    message = np.empty((len(items[0]), (factors + 1) * (factors + 4) // 2), dtype=np.float32)
    for shard in prange(len(bounds) - 1):
        rows, own, sums, columns = allocate_workspace(factors)
        for item in range(bounds[shard], bounds[shard + 1]):
            load_own_vertex(own, item, items)
            add_edges(rows, own, sums, columns, table, (likes, negatives), item, factors)
            at = 0
            for row in range(factors):
                for column in range(row):
                    message[item, at + column] = sums[row * stride + column]
                message[item, at + row] = sums[row * stride + row] + sums[spreads + row]
                at += row + 1
            for column in range(factors + 1):
                message[item, at + column] = sums[ones + column]
                message[item, at + factors + 1 + column] = sums[pulls + column]
    return message


@njit(parallel=True, **OPTIONS)
def sum_bias_parameters(items, table, likes, negatives, bounds):
    """The message of a block of users for the items' biases alone; arguments as in `sum_parameters`."""
    factors = items[0].shape[1]
    message = np.empty((len(items[0]), 2))
    for shard in prange(len(bounds) - 1):
        rows, own, _, columns = allocate_workspace(factors)
        for item in range(bounds[shard], bounds[shard + 1]):
            load_own_vertex(own, item, items)
            message[item, 0], message[item, 1] = add_bias_edges(
                rows, own, columns, table, (likes, negatives), item, factors, 0.0
            )
    return message


def update_item_biases(
    items: VertexPosterior,
    fixed: np.ndarray,
    fresh: list[np.ndarray],
    tau: float,
    step: float,
) -> None:
    """Eq. 19 for every item in place, Algorithm 1, line 10.

    Args:
        fixed: float64 (items, `numbers`), the sum of the messages that are not fresh; what they say of the biases is
            taken at the factors' means of now.
        fresh: messages for the biases alone, of the other blocks.
        tau: E[tau_bv].
    """
    factors = items.mean.shape[1]
    last = factors * (factors + 1) // 2  # where the row of the bias begins
    weight = tau + fixed[:, last + factors]
    z = fixed[:, -1] - np.einsum("nk,nk->n", fixed[:, last : last + factors], items.mean)
    for message in fresh:
        weight += message[:, 0]
        z += message[:, 1]
    old = items.bias_precision.astype(np.float64)
    new = step * weight + (1 - step) * old
    items.bias_mean[:] = (step * z + (1 - step) * old * items.bias_mean) / new
    items.bias_precision[:] = new


def update_item_factors(items: VertexPosterior, total: np.ndarray, tau: float, step: float, shards: int = 64) -> None:
    """Eq. 17 and 18 for every item in place, Algorithm 1, line 16.

    Args:
        total: float64 (items, `numbers`), the sum of the messages of all blocks.
        tau: E[tau_v].
    """
    bounds = partition_evenly(len(total), shards)
    _update_item_factors(items.arrays, total, bounds, np.float32(tau), np.float32(step))


@njit(parallel=True, **OPTIONS)
def _update_item_factors(items, total, bounds, tau, step):
    mean, precision, bias_mean, _ = items
    factors = mean.shape[1]
    stride = pad_width(factors + 1)
    for shard in prange(len(bounds) - 1):
        matrix = np.zeros((factors + 1) * stride, dtype=np.float32)
        z = np.zeros(factors, dtype=np.float32)
        for item in range(bounds[shard], bounds[shard + 1]):
            matrix[:] = 0
            parameters = total[item]
            last = factors * (factors + 1) // 2
            for row in range(factors):
                for column in range(row + 1):
                    matrix[row * stride + column] = parameters[row * (row + 1) // 2 + column]
                matrix[row * stride + row] += tau
                z[row] = parameters[last + factors + 1 + row] - bias_mean[item] * parameters[last + row]
            update_vertex(matrix, stride, z, step, tau, mean, precision, item)
