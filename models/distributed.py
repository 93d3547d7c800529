"""Fits by blocks of users, in calls that any process can make, and make again.

The users' parameters lie in a folder that all workers share. A call for a block (`function(block, state, ...)`, at
module level) reads the arrays of the previous call and writes the new ones atomically under the next number, so that a
call that is repeated after its process died gives the same bits. Item parameters and sums travel as arguments and
results, which are added in the order of the blocks.
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

from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.adjacency import partition_shards

# Loads rows [first, end) of the training matrix on any worker; picklable.
RowLoader = Callable[[int, int], csr_matrix]


class BlockExecutor:
    """Executes the calls of a fit by blocks: in this process, one after another, if a subclass does not say how."""

    def map(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return `function(*call)` of every call, in the order of the calls; a call whose process died is repeated.

        `function` is a module-level function; arguments and results are picklable. Later calls, in any process, can
        read what a call wrote to `FitOptions.scratch`.
        """
        return [function(*call) for call in calls]


@dataclass(frozen=True)
class UserBlock:
    """A block's metadata, sent with every call.

    Attributes:
        number: number of the block, from 0.
        first, end: its users are the rows [first, end) of the training matrix.
        rows: these rows, or what loads them.
        folder: holds the state of the fit's blocks between their calls.
        config: model configuration shared by all blocks.
    """

    number: int
    first: int
    end: int
    rows: csr_matrix | RowLoader
    folder: Path
    config: Any

    def matrix(self, items: int) -> csr_matrix:
        """Load the block's rows of the training matrix; raise a ValueError if they have another shape."""
        rows = self.rows(self.first, self.end) if callable(self.rows) else self.rows
        if rows.shape != (self.end - self.first, items):
            raise ValueError(
                f"rows {self.first} to {self.end} came as a matrix of {rows.shape}; give it one row for each of these "
                f"{self.end - self.first} users, and {items} columns, as the training matrix has"
            )
        return rows

    def read(self, state: int) -> dict[str, np.ndarray]:
        """Read the users' arrays by name, as of write number `state`."""
        try:
            with np.load(self._file(state), allow_pickle=False) as arrays:
                return dict(arrays)
        except FileNotFoundError as error:
            remedy = "give a `scratch` that every worker sees and no other program cleans up"
            raise FileNotFoundError(f"{self._file(state)}: not there; {remedy}") from error

    def write(self, state: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Store arrays atomically as write number `state`; the previous write stays, for a call that is repeated."""
        partial_file = self.folder / f"partial-{uuid.uuid4().hex}.npz"
        np.savez(partial_file, allow_pickle=False, **arrays)
        os.replace(partial_file, self._file(state))
        self._file(state - 2).unlink(missing_ok=True)

    def _file(self, state: int) -> Path:
        return self.folder / f"block-{self.number}-{state}.npz"


class UserBlocks(list[UserBlock]):
    """The blocks of one fit, on the coordinator's side."""

    def __init__(self, blocks: Sequence[UserBlock], workers: BlockExecutor) -> None:
        super().__init__(blocks)
        self._workers, self._states = workers, [0] * len(blocks)

    def write_users(self, users: Mapping[str, np.ndarray]) -> None:
        """Write the initial arrays of all users, by name."""
        for block in self:
            block.write(0, {name: array[block.first : block.end] for name, array in users.items()})

    def map_blocks(
        self, function: Callable[..., Any], *arguments: Any, of: Sequence[UserBlock] | None = None, writes: bool = False
    ) -> list[Any]:
        """Return `function(block, state, *arguments)` of the blocks `of`, all by default, in their order.

        Args:
            function: a module-level function, which reads the block at `state`, and if it `writes`, writes the next.
        """
        blocks = self if of is None else of
        answers = self._workers.map(function, [(block, self._states[block.number], *arguments) for block in blocks])
        for block in blocks if writes else ():
            self._states[block.number] += 1
        return answers

    def gather_users(self) -> dict[str, np.ndarray]:
        """Read the arrays of all users, by name."""
        parts = [block.read(self._states[block.number]) for block in self]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@contextmanager
def partition_users(interactions: csr_matrix, count: int, config: Any, options: FitOptions) -> Generator[UserBlocks]:
    """Cut the users of a fit into at most `count` blocks, whose initial arrays the caller writes.

    Their folder, in `options.scratch` or among the temporary files, is deleted on exit, also after an error.
    """
    if options.scratch:
        options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="blocks-", dir=options.scratch) as folder:
        path, starts = Path(folder).resolve(), interactions.indptr.astype(np.int64)
        bounds = list(pairwise(partition_shards(starts, count).tolist()))
        rows = [options.rows or _view_rows(interactions, first, end) for first, end in bounds]
        blocks = [UserBlock(number, *bounds[number], rows[number], path, config) for number in range(len(bounds))]
        yield UserBlocks(blocks, options.workers or BlockExecutor())


def _view_rows(matrix: csr_matrix, first: int, end: int) -> csr_matrix:
    """Return rows without a copy of their entries."""
    starts, shape = matrix.indptr[first : end + 1], (end - first, matrix.shape[1])
    edges = slice(starts[0], starts[-1])
    return csr_matrix((matrix.data[edges], matrix.indices[edges], starts - starts[0]), shape=shape)
