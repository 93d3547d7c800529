"""A fit by blocks of users: Algorithm 1 of Paquet and Koenigstein (2014) with the messages of section 5.2.

Between blocks there travels, for each item, its part of the natural parameters, and back to them the items' new q. How
many blocks there are is a setting; how many processes compute them is not, and changes no bit. Messages are added in
the order of the blocks, in float64. Fresh messages of all blocks in each iteration make the fit of one machine, but for
the rounding of an item's sums, which each block adds in float32: in the tests, after 14 iterations, every fitted number
is within 2e-5 of the largest of its kind.

With `refreshed` the blocks take turns (eq. 21): the items are updated after each turn, from the fresh messages of its
blocks and the latest of all others, X^(b), which are kept here and subtracted when they are replaced. An iteration is
then a pass over all blocks with several updates of the items, and each of these takes the part of the step after which
the whole pass keeps 1 - epsilon_t of the old, as one update would. The first iteration is of all blocks: every block
then has a message.

The paper cuts the graph by items; here it is cut by users, which its footnote 1 finds smaller where there are fewer
items. So the natural parameters P_n and z_n of an item are sums over blocks, and a block's message holds its part of
them, float32 (items, (K + 1)(K + 4) / 2): with w = 2 lambda(xi) and x = [u_m, 1], over the edges of H that the block
has,

    the lower triangle of sum w E[x x'], row by row,    and behind it    sum (g - 1/2 - w E[b_m]) E[x].

The last row is of the item's bias, E[b_n] times which the factors need. The update of the bias (eq. 19) has a message
of its own, float64 (items, 2), the sums of its P and z.

Negatives depend only on (seed, iteration, user): every call of an iteration draws the same hidden graph, and a block
draws its part of the graph of a fit in one process.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.distributed import UserBlock, UserBlocks, partition_users
from oneclass.models.fit_options import FitOptions
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.numerics.adjacency import copy_pattern, partition_evenly
from oneclass.models.numerics.logistic_bound import OPTIONS, GaussianFactors, allocate_workspace, load_own_vertex
from oneclass.models.numerics.simd import pad_width
from oneclass.models.random_graph.inference import (
    ITEM_BIAS,
    ITEM_FACTORS,
    GraphSampler,
    HiddenGraph,
    PrecisionPosterior,
    RandomGraphPosterior,
    add_edges,
    combine_bound,
    move_biases,
    move_vertex,
    sum_bias_parameters,
)

if TYPE_CHECKING:
    from oneclass.models.random_graph.model import RandomGraphSettings

SECONDS_PER_EDGE = 7e-6  # CPU seconds of a fit
COPIES_PER_FIT = 3  # of the users' arrays in one call: input, layout of the kernels, output
CALL_BYTES_PER_EDGE = 24


def estimate_fit(settings: "RandomGraphSettings", log: LogSize) -> FitCost:
    """Estimate the cost of a fit; one by blocks holds q of the users and items, and the messages between them.

    The coordinator, whose matrix is memory-mapped, holds all users at the start and the end; in between, what goes to
    and comes from all blocks, and the sum of the messages in float64.
    """
    if settings.blocks == 1:
        return FitCost.of_factors(log, settings.factors, SECONDS_PER_EDGE)
    of_user, blocks = 8 * (settings.factors + 1), settings.blocks
    items, message = of_user * log.items, 4 * message_size(settings.factors) * log.items
    stored = blocks * message if 0 < settings.refreshed < blocks else 0
    between = blocks * (items + message) + 2 * message + stored
    here = max(COPIES_PER_FIT * log.users * of_user, between) + items
    of_block = LogSize(-(-log.users // blocks), log.items, -(-log.edges // blocks))
    return FitCost(here + estimate_call(settings, of_block), SECONDS_PER_EDGE * log.edges, coordinator_bytes=here)


def estimate_call(settings: "RandomGraphSettings", block: LogSize) -> int:
    """Estimate the memory of a call for a block of this size."""
    of_user, message = 8 * (settings.factors + 1), 4 * message_size(settings.factors)
    of_users = COPIES_PER_FIT * of_user * block.users + CALL_BYTES_PER_EDGE * block.edges
    return (3 * of_user + 2 * message) * block.items + of_users


@dataclass(frozen=True)
class BlockConfig:
    """Model configuration shared by all blocks.

    Attributes:
        weights: float64 (items,), by which negatives are drawn.
    """

    settings: "RandomGraphSettings"
    seed: int
    weights: np.ndarray


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
    half = pad_width(factors + 2)
    ones, pulls, spreads = half * half, (half + 1) * half, (half + 2) * half
    message = np.empty((len(items[0]), (factors + 1) * (factors + 4) // 2), dtype=np.float32)
    for shard in prange(len(bounds) - 1):
        workspace = allocate_workspace(factors)
        _, own, sums, _ = workspace
        for item in range(bounds[shard], bounds[shard + 1]):
            load_own_vertex(own, item, items)
            add_edges(workspace, table, (likes, negatives), item, factors)
            at = 0
            for row in range(factors):
                for column in range(row):
                    message[item, at + column] = sums[row * half + column]
                message[item, at + row] = sums[row * half + row] + sums[spreads + row]
                at += row + 1
            for column in range(factors + 1):
                message[item, at + column] = sums[ones + column]
                message[item, at + factors + 1 + column] = sums[pulls + column]
    return message


def update_item_biases(
    items: GaussianFactors, fixed: np.ndarray, fresh: list[np.ndarray], tau: float, step: float
) -> None:
    """Eq. 19 for every item in place, Algorithm 1, line 10.

    Args:
        fixed: float64 (items, `numbers`), the sum of the messages that are not fresh; their terms of the biases are
            taken at the current means of the factors.
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
    move_biases(items, weight, z, step)


def update_item_factors(items: GaussianFactors, total: np.ndarray, tau: float, step: float, shards: int = 64) -> None:
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
            move_vertex(matrix, stride, z, step, tau, mean, precision, item)


def bound_of_users(block: UserBlock, state: int, t: int, items: GaussianFactors, taus: PrecisionPosterior) -> float:
    """Return the block's terms of the bound (eq. 12)."""
    graph = _draw_block_graph(block, len(items.mean), t)
    return RandomGraphPosterior(GaussianFactors(**block.read(state)), items, taus).bound_of_users(graph)


def sum_bias_message(block: UserBlock, state: int, t: int, items: GaussianFactors) -> np.ndarray:
    """Return the message for the items' biases, Algorithm 1, line 10."""
    graph, users = _draw_block_graph(block, len(items.mean), t), GaussianFactors(**block.read(state))
    return sum_bias_parameters(items.arrays, users.table(), *graph.by_item, 0.0)


def sum_message(
    block: UserBlock, state: int, t: int, items: GaussianFactors, taus: PrecisionPosterior, step: float
) -> tuple[np.ndarray, tuple[float, float]]:
    """Algorithm 1, lines 13 and 16: update the users, written as `state` + 1, and return the message for the items.

    Returns:
        The message, and the users' sums for eq. 20.
    """
    graph, users = _draw_block_graph(block, len(items.mean), t), GaussianFactors(**block.read(state))
    RandomGraphPosterior(users, items, taus).update_users(graph, step)
    block.write(state + 1, vars(users))
    return sum_parameters(items.arrays, users.table(), *graph.by_item), users.squares()


def _draw_block_graph(block: UserBlock, items: int, t: int) -> HiddenGraph:
    """Draw H^(t) of the block's users, Algorithm 1, line 5."""
    units = np.arange(block.first, block.end, dtype=np.uint64)
    return GraphSampler(copy_pattern(block.matrix(items)), block.config.weights, block.config.seed, units).draw(t)


@contextmanager
def start_distributed_fit(
    config: BlockConfig, q: RandomGraphPosterior, interactions: csr_matrix, options: FitOptions
) -> Generator["DistributedGraphPosterior"]:
    """Start a fit by blocks at the posterior `q`; its scratch store is deleted on exit."""
    with partition_users(interactions, config.settings.blocks, config, options) as blocks:
        blocks.write_users(vars(q.users))
        items, taus = q.items, q.taus
        del q  # its users lie on disk
        yield DistributedGraphPosterior(blocks, items, taus)


class DistributedGraphPosterior:
    """q of all parameters except H during a fit by blocks.

    Attributes:
        items, taus: as in a `RandomGraphPosterior`.
        messages: each block's latest, float32 (items, numbers), if some are fixed while others are refreshed.
        total: float64 (items, numbers), their sum.
    """

    def __init__(self, blocks: UserBlocks, items: GaussianFactors, taus: PrecisionPosterior) -> None:
        self.blocks, self.items, self.taus, self.settings = blocks, items, taus, blocks[0].config.settings
        self.refreshed = min(self.settings.refreshed or len(blocks), len(blocks))
        self.squares = np.zeros((len(blocks), 2))
        self.messages: dict[int, np.ndarray] = {}
        self.total = np.zeros((len(items.mean), message_size(self.settings.factors)))

    def gather(self) -> RandomGraphPosterior:
        """Return the posterior with all users in memory."""
        return RandomGraphPosterior(GaussianFactors(**self.blocks.gather_users()), self.items, self.taus)

    def iterate(self, t: int, step: float) -> dict[str, float]:
        """Run lines 5 to 20 of Algorithm 1; the bound is that of the beginning of the iteration."""
        values = {"bound": self.bound(t)} if self.settings.evaluates_bound(t) else {}
        at_once = self.refreshed if self.messages else len(self.blocks)
        turns = [self.blocks[first : first + at_once] for first in range(0, len(self.blocks), at_once)]
        items_step = 1 - (1 - step) ** (1 / len(turns)) if len(turns) > 1 else step
        for turn in turns:
            self._refresh(turn, t, step, items_step)
        if self.settings.learns_tau(t):
            self.taus.update((*self.squares.sum(axis=0), *self.items.squares()), step)
        return values

    def bound(self, t: int) -> float:
        """Return the bound of eq. 12 on H^(t)."""
        of_users = sum(self.blocks.map_blocks(bound_of_users, t, self.items, self.taus))
        return combine_bound(of_users, self.items, self.taus)

    def _refresh(self, turn: Sequence[UserBlock], t: int, step: float, items_step: float) -> None:
        """Update the users of some blocks, and then the items by eq. 21."""
        self._subtract_messages(turn)
        fresh = self.blocks.map_blocks(sum_bias_message, t, self.items, of=turn)
        update_item_biases(self.items, self.total, fresh, self.taus.mean(ITEM_BIAS), items_step)
        answers = self.blocks.map_blocks(sum_message, t, self.items, self.taus, step, of=turn, writes=True)
        for block, (message, squares) in zip(turn, answers, strict=True):
            self.squares[block.number] = squares
            self.total += message
            if self.refreshed < len(self.blocks):
                self.messages[block.number] = message
        update_item_factors(self.items, self.total, self.taus.mean(ITEM_FACTORS), items_step)

    def _subtract_messages(self, turn: Sequence[UserBlock]) -> None:
        """Subtract the messages that are about to be replaced."""
        if len(turn) == len(self.blocks):
            self.total[:] = 0
            return
        for block in turn:
            self.total -= self.messages[block.number]
