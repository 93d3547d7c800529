"""Kernels of Bayesian Personalized Ranking: drawing negatives, and stochastic gradient steps without races.

A step for (user u, liked item i, other item j) changes three rows. Users are cut into SHARDS contiguous blocks with
about equal numbers of edges, and items into 2 SHARDS blocks. A sample belongs to a *cell*: the block of u and the pair
of blocks of i and j. Item blocks are paired like teams in a round-robin tournament: in each of the 2 SHARDS - 1 rounds
every block is in one pair, so that the SHARDS pairs of a round share no item. In step (round, shift) user block b runs
pair number b + shift of that round. So cells that run at the same time share neither a user nor an item, and the
samples in a cell are run in a fixed order. This is the distributed SGD of Gemulla et al. 2011, with two items in each
sample. An epoch has the same result as one serial order of gradient steps, on any number of threads.
"""

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.adjacency import first_above
from oneclass.models.numerics.random_numbers import below, mix, stream
from oneclass.models.numerics.simd import F32_WIDTH, IN_ORDER, ZERO, broadcast, horizontal_sum, load, store
from oneclass.models.numerics.simd_rows import prefetch_row

SHARDS = 8
ROUNDS = 2 * SHARDS - 1
CELLS = ROUNDS * SHARDS
PREFETCHED = 3  # samples ahead whose rows are fetched


def _schedule() -> tuple[np.ndarray, np.ndarray]:
    """The round robin of 2 SHARDS item blocks, by the circle method.

    Returns:
        round_of: int32 (blocks, blocks), the round in which two different blocks meet; -1 on the diagonal.
        pair_of: int32 (rounds, blocks), the number of a block's pair in a round.
    """
    blocks = 2 * SHARDS
    round_of = np.full((blocks, blocks), -1, dtype=np.int32)
    pair_of = np.empty((ROUNDS, blocks), dtype=np.int32)
    for turn in range(ROUNDS):
        pairs = [(ROUNDS, turn)] + [((turn + k) % ROUNDS, (turn - k) % ROUNDS) for k in range(1, SHARDS)]
        for number, (one, other) in enumerate(pairs):
            round_of[one, other] = round_of[other, one] = turn
            pair_of[turn, one] = pair_of[turn, other] = number
    return round_of, pair_of


ROUND_OF, PAIR_OF = _schedule()


@njit(cache=True)
def sample_cell(one, other, edge):
    """The cell, within its user block, of a sample whose items lie in blocks `one` and `other`.

    If both items are in one block, any round will do; the edge's number chooses it.
    """
    turn = edge % ROUNDS if one == other else np.int64(ROUND_OF[one, other])
    return turn * SHARDS + PAIR_OF[turn, one]


@njit(cache=True)
def load_user(history, weights, total, own, cumulative):
    """Mark the user's items in `own`, and choose how to draw the other items.

    Returns:
        0: draw from all items and reject the user's own, which have at most half of the weight;
        -1: the user likes every item that can be drawn;
        else: the weight of the other items; `cumulative` then holds its running sum, so that nothing is rejected for
        users with many items.
    """
    rest = total
    for item in history:
        own[item] = 1
        rest -= weights[item]
    if rest == 0:
        return np.int64(-1)
    if 2 * rest >= total:
        return np.int64(0)
    running = np.int64(0)
    for item in range(len(own)):
        if own[item] == 0:
            running += weights[item]
        cumulative[item] = running
    return rest


@njit(cache=True)
def draw_negative(key, proposals, own, cumulative, rest):
    """An item that the user does not like; `rest` (not -1) and `cumulative` are from `load_user`."""
    if rest > 0:
        return first_above(cumulative, below(key, 0, rest))
    draw = 0
    while True:
        item = np.int64(proposals[below(key, draw, len(proposals))])
        if own[item] == 0:
            return item
        draw += 1


@njit(parallel=True, nogil=True, cache=True)
def draw_samples(edges, bounds, draws, layout, streams, work, drawn):
    """The samples of an epoch for the users in `bounds`, sorted by cell.

    A user's samples take the user's edges in turn; each epoch goes on where the last one stopped.

    Args:
        edges: (indptr, indices, first): the training edges, and int64 (users + 1,) the number of each user's first
            sample, which is that of its stream; `indptr` itself makes one sample of every edge.
        bounds: int64 (SHARDS, 2), first and last + 1 user of each user block.
        draws: (proposals int32, weights int64 (items,), total): the items to draw from uniformly, how often each item
            occurs among them, and their number.
        layout: (place int32 (items,), block int64 (items,)): the row of each item in the table, and its block.
        streams: (seed, purpose, epoch), three uint64.
        work: (own uint8 (SHARDS, items) of zeros, cumulative int64 (SHARDS, items), unsorted int32
            (SHARDS, room, 4)).
        drawn: (samples, starts): int32 (SHARDS, room, 3), filled with rows (u, row of i, row of j), and int64
            (SHARDS, CELLS + 1), filled with where each cell's samples start.
    """
    indptr, indices, first = edges
    samples, starts = drawn
    proposals, weights, total = draws
    place, block_of = layout
    for shard in prange(SHARDS):
        own, cumulative, unsorted = work[0][shard], work[1][shard], work[2][shard]
        bound, count = starts[shard], 0
        bound[:] = 0
        for user in range(bounds[shard, 0], bounds[shard, 1]):
            history = indices[indptr[user] : indptr[user + 1]]
            rest = load_user(history, weights, total, own, cumulative)
            last = first[user + 1] if rest >= 0 else first[user]
            turn = np.int64(streams[2]) * (last - first[user]) % max(len(history), 1)
            for number in range(first[user], last):  # reads of `proposals` overlap where no branch waits for them
                key = stream(streams[0], streams[1], streams[2], number)
                unsorted[count + number - first[user], 2] = proposals[below(key, 0, len(proposals))]
            for number in range(first[user], last):
                item, other = history[turn], np.int64(unsorted[count, 2])
                if rest > 0 or own[other]:
                    key = stream(streams[0], streams[1], streams[2], number)
                    other = draw_negative(key, proposals, own, cumulative, rest)
                cell = sample_cell(block_of[item], block_of[other], number)
                bound[cell + 1] += 1
                sample = unsorted[count]
                sample[0], sample[1], sample[2], sample[3] = user, place[item], place[other], cell
                count += 1
                turn = turn + 1 if turn + 1 < len(history) else 0
            for item in history:
                own[item] = 0
        for cell in range(CELLS):
            bound[cell + 1] += bound[cell]
        at = bound[:-1].copy()
        for number in range(count):
            cell = unsorted[number, 3]
            for column in range(3):
                samples[shard, at[cell], column] = unsorted[number, column]
            at[cell] += 1


@njit(**IN_ORDER)
def _margin(user, at, items, liked, other, width):
    """u'(v_i - v_j) of a user's row at `at` and of two items' rows at `liked` and `other`."""
    total = broadcast(ZERO)
    for lane in range(0, width, F32_WIDTH):
        total = total + load(user, at + lane) * (load(items, liked + lane) - load(items, other + lane))
    return horizontal_sum(total)


@njit(parallel=True, nogil=True, cache=True, fastmath={"contract", "nsz"})
def run_steps(users, items, biases, width, samples, starts, rate, regularization, loss):
    """Gradient steps on -ln sigma(x_ui - x_uj) + regularization / 2 (|u|^2 + |v_i|^2 + |v_j|^2 + b_i^2 + b_j^2).

    Args:
        users, items: flat tables of factors, float32 (rows width,).
        biases: float32 (item rows,).
        loss: float64 (SHARDS, 2); every 16th sample adds its loss, before its step, and 1.
    """
    shrink = np.float32(1.0) - rate * regularization
    for step in range(CELLS):
        for shard in prange(SHARDS):
            cell = step // SHARDS * SHARDS + (shard + step) % SHARDS
            last = starts[shard, cell + 1] - 1
            for at in range(starts[shard, cell], starts[shard, cell + 1]):
                ahead = min(at + PREFETCHED, last)
                prefetch_row(users, samples[shard, ahead, 0] * width, width)
                prefetch_row(items, samples[shard, ahead, 1] * width, width)
                prefetch_row(items, samples[shard, ahead, 2] * width, width)
                sample = samples[shard, at]
                user, liked, other = sample[0] * width, sample[1] * width, sample[2] * width
                bias, other_bias = biases[sample[1]], biases[sample[2]]
                margin = _margin(users, user, items, liked, other, width) + (bias - other_bias)
                pull = rate / (np.float32(1.0) + np.exp(margin))
                if at % 16 == 0:
                    loss[shard, 0] += np.log1p(np.exp(-np.float64(margin)))
                    loss[shard, 1] += 1.0
                for lane in range(0, width, F32_WIDTH):
                    before, up, down = load(users, user + lane), load(items, liked + lane), load(items, other + lane)
                    store(users, user + lane, shrink * before + pull * (up - down))
                    store(items, liked + lane, shrink * up + pull * before)
                    store(items, other + lane, shrink * down - pull * before)
                biases[sample[1]], biases[sample[2]] = shrink * bias + pull, shrink * other_bias - pull


@njit(parallel=True, nogil=True, cache=True, fastmath={"contract", "nsz"})
def fold_users(histories, items, biases, width, draws, streams, steps, out):
    """The gradient steps of training for users who were not in it, with the items fixed, and a rate that falls to zero.

    Args:
        histories: (indptr, indices), CSR of (users, items).
        items, biases: float32 (items width,), flat, and (items,), in the order of the items.
        draws: as for `draw_samples`.
        streams: (seed, purpose); the rest of the key of a user's stream is made from the history, so that a user's row
            does not depend on the other users in the block.
        steps: (rate, regularization, epochs), the first two float32.
        out: float32 (users width,), flat, zeros; filled.
    """
    indptr, indices = histories
    rate, regularization, epochs = steps
    proposals, weights, total = draws
    users = len(indptr) - 1
    for group in prange((users + 31) // 32):
        own = np.zeros(len(weights), dtype=np.uint8)
        cumulative = np.empty(len(weights), dtype=np.int64)
        for number in range(32 * group, min(32 * group + 32, users)):
            history, user = indices[indptr[number] : indptr[number + 1]], number * width
            rest = load_user(history, weights, total, own, cumulative)
            unit = np.uint64(len(history))
            for item in history:
                unit = mix(unit ^ np.uint64(item))
            for epoch in range(epochs if rest >= 0 else 0):
                now = rate * np.float32(1.0 - epoch / epochs)
                shrink = np.float32(1.0) - now * regularization
                for place in range(len(history)):
                    key = stream(streams[0], streams[1], unit, epoch * len(history) + place)
                    item, other = np.int64(history[place]), draw_negative(key, proposals, own, cumulative, rest)
                    margin = _margin(out, user, items, item * width, other * width, width)
                    pull = now / (np.float32(1.0) + np.exp(margin + (biases[item] - biases[other])))
                    for lane in range(0, width, F32_WIDTH):
                        up, down = load(items, item * width + lane), load(items, other * width + lane)
                        store(out, user + lane, shrink * load(out, user + lane) + pull * (up - down))
            for item in history:
                own[item] = 0
