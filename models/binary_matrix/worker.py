"""One block of users of a binary matrix, wherever it is computed (`models.user_blocks`).

The users' table and their numbers of updates lie with the block. A user's entries are all in the user's block, so that the
user moves as on one machine, to the bit, if the items are the same.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from models.binary_matrix import kernels
from models.binary_matrix.block_sampling import Whole, draw_own, sampler_of_rows
from models.binary_matrix.messages import numbers, sum_maximizers
from models.binary_matrix.minibatch import NOISE_STRIDE, SHARDS, Entries, Moving, grouping
from models.binary_matrix.settings import BinaryMatrixSettings
from models.binary_matrix.tables import divergence
from models.numerics.threads import kernel_threads
from models.user_blocks import Block


@dataclass(frozen=True)
class Terms:
    """What of a model every block must know; `users` are those of all blocks, `seed` is of the draws."""

    settings: BinaryMatrixSettings
    users: int
    seed: int
    threads: int


class Items(NamedTuple):
    """What the items tell the blocks: their table, and z as mean and variance, float32."""

    table: np.ndarray
    z: tuple[np.float32, np.float32]


def weigh(block: Block, state: int, items: int) -> np.ndarray:
    """The block's ones in each column, int64 (items,)."""
    return np.bincount(block.matrix(items).indices, minlength=items)


def move(block: Block, state: int, batch: int, size: int, items: Items) -> tuple[np.ndarray, np.ndarray]:
    """Move the users by those of `size` entries that are theirs; they are written under `state` + 1.

    Returns:
        The message for the items (`models.binary_matrix.messages`), and the sums over the entries, float64 (5,), without the
        noise of the items.
    """
    settings, own = block.terms.settings, block.read(state)
    users, count = own["users"], len(items.table)
    with kernel_threads(block.terms.threads):
        sampler = sampler_of_rows(block.matrix(count), settings.sampling, _whole(block))
        places, (rows, columns, ones, weights) = draw_own(sampler, block.terms.seed, batch, size)
        by_row, by_column = grouping(rows, len(users)), grouping(columns, count)
        means, twice_lambdas = np.empty((2, len(places)), dtype=np.float32)
        sums, watched = np.zeros((SHARDS, 5)), places % NOISE_STRIDE == 0
        of_z, of_rows = (Entries(columns, ones, weights[at], means, twice_lambdas, watched) for at in (2, 0))
        of_columns = Entries(rows, ones, weights[1], means, twice_lambdas, watched)
        moved = users.copy()
        side = Moving(users, moved, 1 / settings.user_variance, sampler.row_p, own["updates"])
        kernels.maximise_xi(by_row, of_z, users, items.table, items.z, sums)
        kernels.step(by_row, of_rows, side, items.table, (settings.t0, settings.power), sums)
        message = np.empty((count, numbers(settings.factors)), dtype=np.float32)
        sum_maximizers(by_column, of_columns, items.table, users, settings.factors, message)
    block.write(state + 1, {"users": moved, "updates": own["updates"]})
    return message, sums.sum(axis=0)


def divergence_of_users(block: Block, state: int) -> float:
    """KL[q(U) || p] of the block."""
    return divergence(block.read(state)["users"], block.terms.settings.user_variance)


def _whole(block: Block) -> Whole:
    ones = block.shared()
    return Whole(block.terms.users, ones["column_ones"], block.first, int(ones["first_ones"][block.number]))
