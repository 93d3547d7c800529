"""What blocks of users tell the items of a binary matrix in a minibatch, and how the items move by it.

The maximizer of entry s for an item's factor k has the precision 1 / variance + A_sk and precision x mean B_sk (see
`models.binary_matrix.model`). An item needs their means over its entries, and the noise of box 8 the sums of squares of
their distance from where the item moves, over every eighth entry. All are sums over entries: of a block's entries a
message holds, for each item, float32 (items, 4 K + 3),

    sum A, sum B (K each);    over the entries that are watched sum A, sum B (K each), and sum_k (A^2 + B^2);    the two counts.
"""

import numpy as np
from numba import njit, prange

from models.binary_matrix.kernels import FAST, NOISE, NOISE_COUNT, forces
from models.binary_matrix.minibatch import SHARDS, Moving
from models.numerics.shards import even_runs


def numbers(factors: int) -> int:
    """Of a message, for one item."""
    return 4 * factors + 3


@njit(cache=True, parallel=True, nogil=True, fastmath=FAST)
def sum_maximizers(by_item, entries, items, users, factors, message):
    """Fill `message` with a block's part.

    Args:
        by_item: the `Grouping` of the block's entries by item.
        entries: `Entries` with the weights for items.
        items, users: tables as they were before the minibatch.
    """
    starts, order, shards = by_item
    rows, ones, weights, means, twice_lambdas, watched = entries
    width = items.shape[1] // 2
    for shard in prange(SHARDS):
        sums, some = np.empty(2 * factors, dtype=np.float32), np.empty(2 * factors, dtype=np.float32)
        for item in range(shards[shard], shards[shard + 1]):
            sums[:], some[:], square, count = 0, 0, 0.0, 0
            for place in range(starts[item], starts[item + 1]):
                entry = order[place]
                u = users[rows[entry]]
                pull, slope = forces(ones[entry], weights[entry], means[entry], twice_lambdas[entry])
                for k in range(factors):
                    sums[k] += pull * (u[k] * u[k] + u[width + k])
                    sums[factors + k] += slope * u[k] + pull * items[item, k] * u[k] * u[k]
                if watched[entry]:
                    count += 1
                    for k in range(factors):
                        a = pull * (u[k] * u[k] + u[width + k])
                        b = slope * u[k] + pull * items[item, k] * u[k] * u[k]
                        some[k] += a
                        some[factors + k] += b
                        square += np.float64(a) * a + np.float64(b) * b
            message[item, : 2 * factors] = sums
            message[item, 2 * factors : 4 * factors] = some
            message[item, 4 * factors] = square
            message[item, 4 * factors + 1] = starts[item + 1] - starts[item]
            message[item, 4 * factors + 2] = count


def move_items(items: Moving, total: np.ndarray, factors: int, schedule: tuple[float, float]) -> np.ndarray:
    """Box 6 for every item with an entry, in place.

    Args:
        items: their table, prior precision, p(j) and numbers of updates; `moved` is not used.
        total: float64 (items, `numbers`), the sum of the messages of all blocks.
        schedule: (t0, power) of the step sizes.

    Returns:
        The sums of the noise and of the entries that it is from, float64 (SHARDS, 5), in the columns of the kernels.
    """
    sums = np.zeros((SHARDS, 5))
    _move(items.own, items.prior_precision, items.p, items.updates, total, factors, schedule, _bounds(len(total)), sums)
    return sums


def _bounds(items: int) -> np.ndarray:
    return even_runs(items, SHARDS)


@njit(cache=True, parallel=True, nogil=True, fastmath=FAST)
def _move(own, prior, p, updates, total, factors, schedule, bounds, sums):
    for shard in prange(SHARDS):
        for item in range(bounds[shard], bounds[shard + 1]):
            entries, watched = total[item, 4 * factors + 1], total[item, 4 * factors + 2]
            if entries == 0:
                continue
            rho = (schedule[0] + updates[item]) ** -schedule[1]
            updates[item] += 1
            distance, length, width = total[item, 4 * factors], 0.0, own.shape[1] // 2
            for k in range(factors):
                mean, variance = own[item, k], own[item, width + k]
                precision = (1 - rho) / variance + rho * (prior + total[item, k] / entries)
                natural = (1 - rho) * mean / variance + rho * total[item, factors + k] / entries
                own[item, k], own[item, width + k] = natural / precision, 1 / precision
                precision = 1 / own[item, width + k]
                natural = own[item, k] * precision
                length += precision * precision + natural * natural
                precision -= prior
                distance += precision * (watched * precision - 2 * total[item, 2 * factors + k])
                distance += natural * (watched * natural - 2 * total[item, 3 * factors + k])
            sums[shard, NOISE] += max(distance, 0.0) / length / p[item]
            sums[shard, NOISE_COUNT] += watched
