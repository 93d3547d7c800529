"""A fit by blocks of users: what of it is the same in every model.

The users' part of a model lies on a shelf (`models.fitting.Shelf`), such as a folder, each block under names of its own. A
call of a block (`function(block, state, ...)`, a module's own) reads the arrays as the call before left them, and writes
them under the next number, whole or not at all. So a call that is made again, because its process died, begins at the same
arrays and gives the same bits. What the items need travels as calls and answers. Answers are added in the order of the
blocks, wherever they were computed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from models.fitting import FitOptions, Rows, RowsAtHand, Shelf, Shelves, Workers
from models.folder_shelf import folder_in
from models.numerics.shards import runs

SHARED = "shared"


@dataclass(frozen=True)
class Block:
    """What a worker is told of a block, with every call.

    Attributes:
        number: of the block, from 0.
        first, end: its users are [first, end) of the training matrix.
        rows: how to get their rows.
        shelf: of the fit.
        terms: what of the model every block must know.
    """

    number: int
    first: int
    end: int
    rows: Rows
    shelf: Shelf
    terms: Any

    def matrix(self, items: int) -> csr_matrix:
        """The block's rows of the training matrix.

        Raises:
            ValueError: `rows` gives something else.
        """
        rows = self.rows(self.first, self.end)
        if rows.shape != (self.end - self.first, items):
            raise ValueError(
                f"rows {self.first} to {self.end} came as a matrix of {rows.shape}; give it one row for each of these "
                f"{self.end - self.first} users, and {items} columns, as the training matrix has"
            )
        return rows

    def read(self, state: int) -> dict[str, np.ndarray]:
        """The users' arrays by name, as write number `state` left them.

        Raises:
            FileNotFoundError: they are not there.
        """
        return self.shelf.read(self._name(state))

    def write(self, state: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep the arrays under the next number. The write before stays, for a call that is made again."""
        self.shelf.write(self._name(state), arrays)
        if state > 1:
            self.shelf.remove(self._name(state - 2))

    def shared(self) -> dict[str, np.ndarray]:
        """The arrays by name that `Blocks.share` keeps for all blocks."""
        return self.shelf.read(SHARED)

    def _name(self, state: int) -> str:
        return f"block-{self.number}-{state}"


class Blocks(Sequence[Block]):
    """The blocks of one fit, as the coordinator has them; their shelf goes when the fit ends."""

    def __init__(self, blocks: Sequence[Block], shelf: Shelf, workers: Workers) -> None:
        self._shelf = shelf
        self._blocks, self._workers, self._states = list(blocks), workers, [0] * len(blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, places: int | slice) -> Any:
        return self._blocks[places]

    def begin(self, users: Mapping[str, np.ndarray]) -> None:
        """Write the arrays with which all users begin, by name."""
        for block in self:
            block.write(0, {name: array[block.first : block.end] for name, array in users.items()})

    def share(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep arrays, by name, that every block may read (`Block.shared`), and that need not travel with each call."""
        self._shelf.write(SHARED, arrays)

    def ask(
        self, function: Callable[..., Any], *arguments: Any, of: Sequence[Block] | None = None, writes: bool = False
    ) -> list:
        """`function(block, state, *arguments)` of all blocks, or of some, in their order.

        Args:
            function: a module's own; it reads the block at `state`.
            writes: it also writes the block under `state` + 1.
        """
        blocks = self if of is None else of
        answers = self._workers.map(function, [(block, self._states[block.number], *arguments) for block in blocks])
        for block in blocks if writes else ():
            self._states[block.number] += 1
        return answers

    def gathered(self) -> dict[str, np.ndarray]:
        """The arrays of all users, by name."""
        whole: dict[str, np.ndarray] = {}
        for block in self:
            for name, part in block.read(self._states[block.number]).items():
                if name not in whole:
                    whole[name] = np.empty((self[-1].end, *part.shape[1:]), dtype=part.dtype)
                whole[name][block.first : block.end] = part
        return whole


@contextmanager
def cut_into_blocks(
    interactions: csr_matrix, count: int, terms: Any, options: FitOptions, name: str
) -> Iterator[Blocks]:
    """The blocks of a fit, whose users are yet to be written (`Blocks.begin`).

    Their shelf, in `options.scratch`, goes with the context, however it ends.

    Args:
        count: of the blocks; there may be fewer.
        terms, name: of the model.
    """
    with _shelves(options.scratch)(name) as shelf:
        blocks = [
            Block(number, first, end, _rows(interactions, first, end, options), shelf, terms)
            for number, (first, end) in enumerate(cuts(interactions.indptr, count))
        ]
        yield Blocks(blocks, shelf, options.workers)


def _shelves(scratch: Path | Shelves | None) -> Shelves:
    return scratch if callable(scratch) else partial(folder_in, scratch)


def added(parts: Iterable[np.ndarray]) -> np.ndarray:
    """The sum of arrays of one shape, float64, in their order."""
    first, *others = parts
    total = first.astype(np.float64)
    for part in others:
        total += part
    return total


def cuts(starts: np.ndarray, count: int) -> list[tuple[int, int]]:
    """(first, end) of at most `count` blocks with about equal numbers of edges, none of them without users."""
    bounds = np.unique(runs(starts.astype(np.int64), count, 8)).tolist()
    return list(pairwise(bounds))


def _rows(matrix: csr_matrix, first: int, end: int, options: FitOptions) -> Rows:
    """How a block gets its rows; of those at hand nothing is copied."""
    if options.rows:
        return options.rows
    edges, starts = slice(matrix.indptr[first], matrix.indptr[end]), matrix.indptr[first : end + 1]
    parts = (matrix.data[edges], matrix.indices[edges], starts - starts[0])
    return RowsAtHand(first, csr_matrix(parts, shape=(end - first, matrix.shape[1])))
