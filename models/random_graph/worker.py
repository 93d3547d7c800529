"""One block of users, wherever it is computed: what a call does with it, and where its users lie between two calls.

A call reads the users as the call before left them, and writes them under the next number, whole or not at all. So a call
that is made again, because its process died, begins at the same users and gives the same bits. Negatives depend on
(seed, iteration, user) alone: every call of an iteration draws the same hidden graph, and a block its part of the one that
one machine draws.
"""

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.fitting import Rows
from models.numerics.adjacency import adjacency
from models.numerics.shards import shards
from models.numerics.threads import kernel_threads
from models.random_graph.inference import GraphSampler, HiddenGraph, RandomGraphPosterior
from models.random_graph.messages import sum_bias_parameters, sum_parameters
from models.random_graph.posterior import Precisions, Vertices
from models.random_graph.settings import RandomGraphSettings

WEIGHTS = "weights.npy"


@dataclass(frozen=True)
class Block:
    """What a worker is told of a block, with every call.

    Attributes:
        number: of the block, from 0.
        first, end: its users are [first, end) of the training matrix.
        rows: how to get their rows.
        folder: of the fit, seen by all workers; holds the histogram of the negatives and the users' q.
        settings, seed, threads: of the model.
    """

    number: int
    first: int
    end: int
    rows: Rows
    folder: Path
    settings: RandomGraphSettings
    seed: int
    threads: int

    def read(self, state: int) -> Vertices:
        """The users as write number `state` left them.

        Raises:
            FileNotFoundError: they are not there.
        """
        file = self._file(state)
        if not file.exists():
            raise FileNotFoundError(f"{file}: not there; give a `scratch` that every worker sees, and nobody tidies")
        with np.load(file, allow_pickle=False) as arrays:
            return Vertices(**arrays)

    def write(self, state: int, users: Vertices) -> None:
        """Keep the users under the next number. The write before stays, for a call that is made again."""
        partial = self.folder / f"partial-{uuid.uuid4().hex}.npz"
        np.savez(partial, **vars(users))
        os.replace(partial, self._file(state))
        self._file(state - 2).unlink(missing_ok=True)

    def _file(self, state: int) -> Path:
        return self.folder / f"block-{self.number}-{state}.npz"

    def graph(self, items: int, t: int) -> HiddenGraph:
        """H^(t) of the block's users, Algorithm 1, line 5.

        Raises:
            ValueError: `rows` gives something else than the block's rows.
        """
        rows = self.rows(self.first, self.end)
        if rows.shape != (self.end - self.first, items):
            raise ValueError(
                f"rows {self.first} to {self.end} came as a matrix of {rows.shape}; give it one row for each of these "
                f"{self.end - self.first} users, and {items} columns, as the training matrix has"
            )
        units = np.arange(self.first, self.end, dtype=np.uint64)
        weights = np.load(self.folder / WEIGHTS, allow_pickle=False)
        return GraphSampler(adjacency(rows), weights, self.seed, units).draw(t)


def bound_of_users(block: Block, state: int, t: int, items: Vertices, taus: Precisions) -> float:
    """The block's terms of the bound (eq. 12)."""
    with kernel_threads(block.threads):
        graph = block.graph(len(items.mean), t)
        return RandomGraphPosterior(block.read(state), items, taus).bound_of_users(graph)


def bias_message(block: Block, state: int, t: int, items: Vertices, taus: Precisions, step: float) -> np.ndarray:
    """Algorithm 1, lines 7 and 10: the users' biases, which are written under `state` + 1, if they are learned; then the
    message for the items' biases (`models.random_graph.messages`)."""
    with kernel_threads(block.threads):
        graph, users = block.graph(len(items.mean), t), block.read(state)
        if block.settings.user_biases:
            RandomGraphPosterior(users, items, taus).update_user_biases(graph, step)
            block.write(state + 1, users)
        return sum_bias_parameters(items.arrays, users.table(), *_by_item(graph))


def message(
    block: Block, state: int, t: int, items: Vertices, taus: Precisions, step: float
) -> tuple[np.ndarray, tuple[float, float]]:
    """Algorithm 1, lines 13 and 16: the users, which are written under `state` + 1; then the message for the items.

    Returns:
        The message (`models.random_graph.messages`), and the users' sums for eq. 20.
    """
    settings = block.settings
    with kernel_threads(block.threads):
        graph, users = block.graph(len(items.mean), t), block.read(state)
        joint = settings.joint_bias and settings.user_biases
        RandomGraphPosterior(users, items, taus).update_users(graph, step, joint=joint)
        block.write(state + 1, users)
        return sum_parameters(items.arrays, users.table(), *_by_item(graph)), users.squares()


def _by_item(graph: HiddenGraph) -> tuple:
    return graph.likes_by_item, graph.negatives_by_item, shards(graph.likes_by_item[0])
