"""A fit by blocks of users: Algorithm 1 of Paquet and Koenigstein (2014) with the messages of section 5.2.

Between blocks there travels, for each item, its part of the natural parameters, and back to them the items' new q. How
many blocks there are is a setting; how many processes compute them is not, and changes no bit. Messages are added in the
order of the blocks, in float64. Fresh messages of all blocks in each iteration make the fit of one machine, but for the
rounding of an item's sums, which each block adds in float32: in the tests, after 14 iterations, every fitted number is
within 2e-5 of the largest of its kind.

With `refreshed` the blocks take turns (eq. 21): the items are updated after each turn, from the fresh messages of its
blocks and the latest of all others, X^(b), which are kept here and subtracted when they are replaced. An iteration is then
a pass over all blocks with several updates of the items, and each of these takes the part of the step after which the
whole pass keeps 1 - epsilon_t of the old, as one update would. The first iteration is of all blocks: every block then has
a message.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from models.fitting import FitOptions, RowsAtHand, Workers
from models.numerics.shards import runs
from models.random_graph import worker
from models.random_graph.inference import RandomGraphPosterior, whole_bound
from models.random_graph.messages import move_biases, move_factors, numbers
from models.random_graph.posterior import ITEM_BIAS, ITEM_FACTORS, Precisions, Vertices
from models.random_graph.settings import RandomGraphSettings
from models.random_graph.worker import Block


@dataclass(frozen=True)
class Terms:
    """What of a model every block must know."""

    settings: RandomGraphSettings
    seed: int
    threads: int


@contextmanager
def begun(
    terms: Terms, q: RandomGraphPosterior, weights: np.ndarray, interactions: csr_matrix, options: FitOptions
) -> Iterator["BlocksPosterior"]:
    """A fit by blocks at its beginning, which is `q`; its folder in `options.scratch` goes when it ends, however it ends.

    Args:
        weights: float64 (items,), by which negatives are drawn.
    """
    scratch = options.scratch.resolve() if options.scratch else None
    if scratch:
        scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="random_graph-", dir=scratch) as folder:
        np.save(Path(folder) / worker.WEIGHTS, weights)
        blocks = []
        for number, (first, end) in enumerate(cuts(interactions.indptr, terms.settings.blocks)):
            rows = options.rows or RowsAtHand(first, _rows(interactions, first, end))
            block = Block(number, first, end, rows, Path(folder), **vars(terms))
            block.write(0, q.users.rows(slice(first, end)))
            blocks.append(block)
        items, taus = q.items, q.taus
        del q  # its users lie on disk
        yield BlocksPosterior(blocks, items, taus, options.workers)


def cuts(starts: np.ndarray, count: int) -> list[tuple[int, int]]:
    """(first, end) of at most `count` blocks with about equal numbers of edges, none of them without users."""
    bounds = np.unique(runs(starts.astype(np.int64), count, 8)).tolist()
    return list(pairwise(bounds))


def _rows(matrix: csr_matrix, first: int, end: int) -> csr_matrix:
    """The pattern of some rows, without a copy of their columns."""
    edges, starts = slice(matrix.indptr[first], matrix.indptr[end]), matrix.indptr[first : end + 1]
    ones = np.broadcast_to(np.int8(1), edges.stop - edges.start)
    return csr_matrix((ones, matrix.indices[edges], starts - starts[0]), shape=(end - first, matrix.shape[1]))


class BlocksPosterior:
    """q of all parameters but H while a fit by blocks goes on; it serves as a `RandomGraphPosterior` does.

    Attributes:
        items, taus: as of a `RandomGraphPosterior`.
        messages: of each block the latest, float32 (items, numbers), where others are fixed while some are refreshed.
        total: float64 (items, numbers), their sum.
    """

    def __init__(self, blocks: Sequence[Block], items: Vertices, taus: Precisions, workers: Workers) -> None:
        self.blocks, self.items, self.taus = blocks, items, taus
        self.settings, self.workers = blocks[0].settings, workers
        self.refreshed = min(self.settings.refreshed or len(blocks), len(blocks))
        self.states = [0] * len(blocks)
        self.squares = np.zeros((len(blocks), 2))
        self.messages: dict[int, np.ndarray] = {}
        self.total = np.zeros((len(items.mean), numbers(self.settings.factors)))

    @property
    def users(self) -> Vertices:
        """q of all users, read from where the blocks lie."""
        users = Vertices.prior(self.blocks[-1].end, self.settings.factors, clamped=False)
        for block in self.blocks:
            for array, part in zip(users.arrays, block.read(self.states[block.number]).arrays, strict=True):
                array[block.first : block.end] = part
        return users

    def gathered(self) -> RandomGraphPosterior:
        """The same in memory."""
        return RandomGraphPosterior(self.users, self.items, self.taus)

    def iterate(self, t: int, step: float) -> dict[str, float]:
        """Lines 5 to 20 of Algorithm 1; the bound is that of the beginning of the iteration."""
        values = {"bound": self.bound(t)} if self.settings.watched(t) else {}
        at_once = len(self.blocks) if t == 1 else self.refreshed
        turns = [self.blocks[first : first + at_once] for first in range(0, len(self.blocks), at_once)]
        items_step = 1 - (1 - step) ** (1 / len(turns)) if len(turns) > 1 else step
        for turn in turns:
            self._refresh(turn, t, step, items_step)
        if self.settings.learn_tau and t > self.settings.t_tau:
            self.taus.move((*self.squares.sum(axis=0), *self.items.squares()), step)
        return values

    def bound(self, t: int) -> float:
        """The bound of eq. 12 on H^(t)."""
        of_users = sum(self._ask(worker.bound_of_users, self.blocks, t))
        return whole_bound(of_users, self.items, self.taus, clamped=not self.settings.user_biases)

    def _refresh(self, turn: Sequence[Block], t: int, step: float, items_step: float) -> None:
        """Update the users of some blocks, and then the items by eq. 21."""
        joint, learned = self.settings.joint_bias, self.settings.user_biases
        taus = self.taus.mean(ITEM_FACTORS), self.taus.mean(ITEM_BIAS)
        self._forget(turn)
        if not joint:
            fresh = self._ask(worker.bias_message, turn, t, step)
            self._moved(turn if learned else ())
            move_biases(self.items, self.total, fresh, taus[1], items_step)
        answers = self._ask(worker.message, turn, t, step)
        self._moved(turn)
        for block, (message, squares) in zip(turn, answers, strict=True):
            self.squares[block.number] = squares
            self.total += message
            if self.refreshed < len(self.blocks):
                self.messages[block.number] = message
        move_factors(self.items, self.total, taus, items_step, joint=joint)

    def _forget(self, turn: Sequence[Block]) -> None:
        """Subtract the messages that are about to be replaced."""
        if len(turn) == len(self.blocks):
            self.total[:] = 0
            return
        for block in turn:
            self.total -= self.messages[block.number]

    def _ask(self, function: Callable[..., Any], blocks: Sequence[Block], t: int, *more: float) -> list:
        """The blocks' answers, each made at the users that its last write left."""
        calls = [(block, self.states[block.number], t, self.items, self.taus, *more) for block in blocks]
        return self.workers.map(function, calls)

    def _moved(self, blocks: Sequence[Block]) -> None:
        """Note that the blocks have written their users."""
        for block in blocks:
            self.states[block.number] += 1
