"""The calls for one block of users (`models.distributed`).

Negatives depend only on (seed, iteration, user): every call of an iteration draws the same hidden graph, and a block
draws its part of the graph of a fit in one process.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from oneclass.models.distributed import UserBlock
from oneclass.models.numerics.adjacency import copy_pattern
from oneclass.models.numerics.partition import partition_shards
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.random_graph.inference import GraphSampler, HiddenGraph, RandomGraphPosterior
from oneclass.models.random_graph.messages import sum_bias_parameters, sum_parameters
from oneclass.models.random_graph.posterior import PrecisionPosterior, VertexPosterior
from oneclass.models.random_graph.settings import RandomGraphSettings


@dataclass(frozen=True)
class BlockConfig:
    """Model configuration shared by all blocks."""

    settings: RandomGraphSettings
    seed: int
    threads: int


def bound_of_users(block: UserBlock, state: int, t: int, items: VertexPosterior, taus: PrecisionPosterior) -> float:
    """Return the block's terms of the bound (eq. 12)."""
    with kernel_threads(block.config.threads):
        graph = _draw_block_graph(block, len(items.mean), t)
        return RandomGraphPosterior(VertexPosterior(**block.read(state)), items, taus).bound_of_users(graph)


def sum_bias_message(
    block: UserBlock, state: int, t: int, items: VertexPosterior, taus: PrecisionPosterior, step: float
) -> np.ndarray:
    """Algorithm 1, lines 7 and 10: update the users' biases, if learned, and return the message for the items' biases
    (`models.random_graph.messages`). The users are written as `state` + 1.
    """
    with kernel_threads(block.config.threads):
        graph, users = _draw_block_graph(block, len(items.mean), t), VertexPosterior(**block.read(state))
        if block.config.settings.user_biases:
            RandomGraphPosterior(users, items, taus).update_user_biases(graph, step)
            block.write(state + 1, vars(users))
        return sum_bias_parameters(items.arrays, users.table(), *_group_by_item(graph))


def sum_message(
    block: UserBlock, state: int, t: int, items: VertexPosterior, taus: PrecisionPosterior, step: float
) -> tuple[np.ndarray, tuple[float, float]]:
    """Algorithm 1, lines 13 and 16: update the users, written as `state` + 1, and return the message for the items.

    Returns:
        The message (`models.random_graph.messages`), and the users' sums for eq. 20.
    """
    settings = block.config.settings
    with kernel_threads(block.config.threads):
        graph, users = _draw_block_graph(block, len(items.mean), t), VertexPosterior(**block.read(state))
        joint = settings.joint_bias and settings.user_biases
        RandomGraphPosterior(users, items, taus).update_users(graph, step, joint=joint)
        block.write(state + 1, vars(users))
        return sum_parameters(items.arrays, users.table(), *_group_by_item(graph)), users.squares()


def _draw_block_graph(block: UserBlock, items: int, t: int) -> HiddenGraph:
    """Draw H^(t) of the block's users, Algorithm 1, line 5."""
    units = np.arange(block.first, block.end, dtype=np.uint64)
    weights = block.load_shared()["weights"]
    return GraphSampler(copy_pattern(block.matrix(items)), weights, block.config.seed, units).draw(t)


def _group_by_item(graph: HiddenGraph) -> tuple[Any, ...]:
    return graph.likes_by_item, graph.negatives_by_item, partition_shards(graph.likes_by_item[0])
