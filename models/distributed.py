"""Fits by blocks of users: the part that all models share.

The users' parameters lie in a scratch store (`LocalScratch`), each block under its own names. A call for a block
(`function(block, state, ...)`, at module level) reads the arrays of the previous call and writes the new
ones atomically under the next number. So a call that is repeated after its process died reads the same arrays and gives
the same bits. Item parameters and sums travel as arguments and results. Results are added in the order of the blocks,
wherever they were computed.
"""

import os
import tempfile
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import BlockExecutor, FitOptions, InMemoryRows, RowLoader
from oneclass.models.numerics.partition import partition_rows

MISSING_SCRATCH = "not there; give a `scratch` that every worker sees and no other program cleans up"


@dataclass(frozen=True)
class LocalScratch:
    """Scratch storage for the state of blocks between their calls, in a folder shared by all workers."""

    path: Path

    def read(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays stored under a name."""
        file = self._file(name)
        if not file.exists():
            raise FileNotFoundError(f"{file}: {MISSING_SCRATCH}")
        with np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)

    def write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Store arrays under a name atomically, replacing earlier ones."""
        partial_file = self.path / f"partial-{uuid.uuid4().hex}.npz"
        np.savez(partial_file, allow_pickle=False, **arrays)
        os.replace(partial_file, self._file(name))

    def remove(self, name: str) -> None:
        """Delete a name, if it exists."""
        self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.npz"


@contextmanager
def open_scratch(scratch: Path | None, name: str) -> Generator[LocalScratch]:
    """Create a folder for one fit of the model with this name, in `scratch` or among the temporary files."""
    if scratch:
        scratch = scratch.resolve()
        scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=scratch) as folder:
        yield LocalScratch(Path(folder))


SHARED_NAME = "shared"


@dataclass(frozen=True)
class UserBlock:
    """A block's metadata, sent with every call.

    Attributes:
        number: number of the block, from 0.
        first, end: its users are the rows [first, end) of the training matrix.
        rows: loads these rows.
        scratch: the fit's scratch store.
        config: model configuration shared by all blocks.
    """

    number: int
    first: int
    end: int
    rows: RowLoader
    scratch: LocalScratch
    config: Any

    def matrix(self, items: int) -> csr_matrix:
        """Load the block's rows of the training matrix.

        Raises:
            ValueError: they have another shape.
        """
        rows = self.rows(self.first, self.end)
        if rows.shape != (self.end - self.first, items):
            raise ValueError(
                f"rows {self.first} to {self.end} came as a matrix of {rows.shape}; give it one row for each of these "
                f"{self.end - self.first} users, and {items} columns, as the training matrix has"
            )
        return rows

    def read(self, state: int) -> dict[str, np.ndarray]:
        """Read the users' arrays by name, as of write number `state`.

        Raises:
            FileNotFoundError: they are absent.
        """
        return self.scratch.read(self._name(state))

    def write(self, state: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Store the arrays as write number `state`. The previous write stays, for a call that is repeated."""
        self.scratch.write(self._name(state), arrays)
        if state > 1:
            self.scratch.remove(self._name(state - 2))

    def load_shared(self) -> dict[str, np.ndarray]:
        """Read the arrays that `UserBlocks.share` stored for all blocks."""
        return self.scratch.read(SHARED_NAME)

    def _name(self, state: int) -> str:
        return f"block-{self.number}-{state}"


class UserBlocks(Sequence[UserBlock]):
    """The blocks of one fit, on the coordinator's side."""

    def __init__(self, blocks: Sequence[UserBlock], scratch: LocalScratch, workers: BlockExecutor) -> None:
        self._scratch = scratch
        self._blocks, self._workers, self._states = list(blocks), workers, [0] * len(blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int | slice) -> Any:
        return self._blocks[index]

    def write_users(self, users: Mapping[str, np.ndarray]) -> None:
        """Write the initial arrays of all users, by name."""
        for block in self:
            block.write(0, {name: array[block.first : block.end] for name, array in users.items()})

    def share(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Store arrays by name for all blocks (`UserBlock.load_shared`), not to be sent with each call."""
        self._scratch.write(SHARED_NAME, arrays)

    def map_blocks(
        self, function: Callable[..., Any], *arguments: Any, of: Sequence[UserBlock] | None = None, writes: bool = False
    ) -> list[Any]:
        """Return `function(block, state, *arguments)` of all blocks, or of some, in their order.

        Args:
            function: a module-level function, which reads the block at `state`.
            of: the blocks; all by default.
            writes: whether it also writes the block as `state` + 1.
        """
        blocks = self if of is None else of
        answers = self._workers.map(function, [(block, self._states[block.number], *arguments) for block in blocks])
        for block in blocks if writes else ():
            self._states[block.number] += 1
        return answers

    def gather_users(self) -> dict[str, np.ndarray]:
        """Read the arrays of all users, by name."""
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
) -> Generator[UserBlocks]:
    """Cut the users of a fit into blocks, whose initial arrays the caller writes (`UserBlocks.write_users`).

    The scratch store, in `options.scratch`, is deleted on exit, also after an error.

    Args:
        count: number of blocks; with few users there are fewer.
        config: model configuration shared by all blocks.
        name: name of the model.
    """
    with open_scratch(options.scratch, name) as scratch:
        blocks = [
            UserBlock(number, first, end, _row_loader(interactions, first, end, options), scratch, config)
            for number, (first, end) in enumerate(partition_by_edges(interactions.indptr, count))
        ]
        yield UserBlocks(blocks, scratch, options.workers)


def partition_by_edges(starts: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Return (first, end) of at most `count` blocks of rows, none empty, with about equal numbers of edges."""
    bounds = np.unique(partition_rows(starts.astype(np.int64), count, 8)).tolist()
    return list(pairwise(bounds))


def _row_loader(matrix: csr_matrix, first: int, end: int, options: FitOptions) -> RowLoader:
    """Return the loader of a block's rows; rows in memory are not copied."""
    if options.rows:
        return options.rows
    edges, starts = slice(matrix.indptr[first], matrix.indptr[end]), matrix.indptr[first : end + 1]
    parts = (matrix.data[edges], matrix.indices[edges], starts - starts[0])
    return InMemoryRows(first, csr_matrix(parts, shape=(end - first, matrix.shape[1])))
