"""A fit by blocks of users: what of it is the same in every model.

The users' part of a model lies on a shelf (`models.fit_options.ScratchStore`), such as a folder, each block under names of its own. A
call of a block (`function(block, state, ...)`, a module's own) reads the arrays as the call before left them, and writes
them under the next number, whole or not at all. So a call that is made again, because its process died, begins at the same
arrays and gives the same bits. What the items need travels as calls and answers. Answers are added in the order of the
blocks, wherever they were computed.
"""

import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import BlockExecutor, FitOptions, InMemoryRows, RowLoader, ScratchFactory, ScratchStore
from oneclass.models.numerics.partition import partition_rows

MISSING_SCRATCH = "not there; give a `scratch` that every worker sees, and nobody tidies"


@dataclass(frozen=True)
class LocalScratch:
    """A shelf (`models.fit_options.ScratchStore`) that is a folder."""

    path: Path

    def read(self, name: str) -> dict[str, np.ndarray]:
        """As in `ScratchStore`."""
        file = self._file(name)
        if not file.exists():
            raise FileNotFoundError(f"{file}: {MISSING_SCRATCH}")
        with np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)

    def write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """As in `ScratchStore`."""
        half_made = self.path / f"partial-{uuid.uuid4().hex}.npz"
        np.savez(half_made, allow_pickle=False, **arrays)
        os.replace(half_made, self._file(name))

    def remove(self, name: str) -> None:
        """As in `ScratchStore`."""
        self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.npz"


@contextmanager
def open_scratch(scratch: Path | None, name: str) -> Iterator[LocalScratch]:
    """A folder for one fit of the model of that name, in `scratch` or among the temporary folders."""
    if scratch:
        scratch = scratch.resolve()
        scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=scratch) as folder:
        yield LocalScratch(Path(folder))


SHARED_NAME = "shared"


@dataclass(frozen=True)
class UserBlock:
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
    rows: RowLoader
    scratch: ScratchStore
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
        return self.scratch.read(self._name(state))

    def write(self, state: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep the arrays under the next number. The write before stays, for a call that is made again."""
        self.scratch.write(self._name(state), arrays)
        if state > 1:
            self.scratch.remove(self._name(state - 2))

    def shared(self) -> dict[str, np.ndarray]:
        """The arrays by name that `Blocks.share` keeps for all blocks."""
        return self.scratch.read(SHARED_NAME)

    def _name(self, state: int) -> str:
        return f"block-{self.number}-{state}"


class UserBlocks(Sequence[UserBlock]):
    """The blocks of one fit, as the coordinator has them; their shelf goes when the fit ends."""

    def __init__(self, blocks: Sequence[UserBlock], shelf: ScratchStore, workers: BlockExecutor) -> None:
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
        self._shelf.write(SHARED_NAME, arrays)

    def ask(
        self, function: Callable[..., Any], *arguments: Any, of: Sequence[UserBlock] | None = None, writes: bool = False
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
def partition_users(
    interactions: csr_matrix, count: int, config: Any, options: FitOptions, name: str
) -> Iterator[UserBlocks]:
    """The blocks of a fit, whose users are yet to be written (`Blocks.begin`).

    Their shelf, in `options.scratch`, goes with the context, however it ends.

    Args:
        count: of the blocks; there may be fewer.
        terms, name: of the model.
    """
    with _scratch_factory(options.scratch)(name) as shelf:
        blocks = [
            UserBlock(number, first, end, _row_loader(interactions, first, end, options), shelf, config)
            for number, (first, end) in enumerate(partition_by_edges(interactions.indptr, count))
        ]
        yield UserBlocks(blocks, shelf, options.workers)


def _scratch_factory(scratch: Path | ScratchFactory | None) -> ScratchFactory:
    return scratch if callable(scratch) else partial(open_scratch, scratch)


def add_arrays(parts: Iterable[np.ndarray]) -> np.ndarray:
    """The sum of arrays of one shape, float64, in their order."""
    first, *others = parts
    total = first.astype(np.float64)
    for part in others:
        total += part
    return total


def partition_by_edges(starts: np.ndarray, count: int) -> list[tuple[int, int]]:
    """(first, end) of at most `count` blocks with about equal numbers of edges, none of them without users."""
    bounds = np.unique(partition_rows(starts.astype(np.int64), count, 8)).tolist()
    return list(pairwise(bounds))


def _row_loader(matrix: csr_matrix, first: int, end: int, options: FitOptions) -> RowLoader:
    """How a block gets its rows; of those at hand nothing is copied."""
    if options.rows:
        return options.rows
    edges, starts = slice(matrix.indptr[first], matrix.indptr[end]), matrix.indptr[first : end + 1]
    parts = (matrix.data[edges], matrix.indices[edges], starts - starts[0])
    return InMemoryRows(first, csr_matrix(parts, shape=(end - first, matrix.shape[1])))
