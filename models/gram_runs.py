"""X' diag(w) X of a fit on many workers: rows by runs of items, each a sum over blocks of users, in files that workers map.

The items are cut into runs. For the rows of its run a worker takes one block of users after another (`models.user_blocks`)
and adds what the block has, so that nobody holds the rows of all users. Sums of the users' weights are exact
(`models.numerics.degree_weights`): the matrix has the bits of one machine's, however blocks and runs are cut. It is
stored sparse, the pairs of items that share a user. A run puts files of its own on the fit's shelf
(`models.fitting.Shelf`), whole or not at all; the coordinator has them joined, and then each worker maps the whole matrix
and reads what it needs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from models.fitting import FitOptions, Shelf, Workers
from models.folder_shelf import JOINED
from models.numerics.shards import even_runs, runs, within
from models.user_blocks import Block, Sizes, cut_into_blocks

AT_ONCE = 1 << 22  # elements of the rows that a call sums at once, 50 MB; some three times that is in use
PIECE = 1 << 20  # elements of the rows that are written at once
STARTS = "starts.int64"


@dataclass(frozen=True)
class ItemRun:
    """What a worker is told of a run of items, with every call.

    Attributes:
        number: of the run, from 0.
        first, end: its items are [first, end).
        items: of the training matrix.
        shelf: of the fit; the arrays are flat ones.
        threads: of the worker's kernels.
    """

    number: int
    first: int
    end: int
    items: int
    shelf: Shelf
    threads: int

    def read(self, name: str, *, own: bool = False) -> np.ndarray:
        """An array of the fit, or of the run's own, memory-mapped and read-only.

        Raises:
            FileNotFoundError: it is not there.
        """
        return self.shelf.flat(self.own(name) if own else name)

    def write(self, pieces: Iterable[Mapping[str, np.ndarray]]) -> None:
        """Write arrays of the run's own, of each name the pieces one after the other; whole or not at all."""
        self.shelf.write_flat({self.own(name): part for name, part in piece.items()} for piece in pieces)

    def own(self, name: str) -> str:
        """The name on the shelf of an array of the run's own."""
        return f"run-{self.number}-{name}"


class ItemRuns(Sequence[ItemRun]):
    """The runs of one fit, as the coordinator has them; their folder goes when the fit ends."""

    def __init__(self, runs: Sequence[ItemRun], blocks: Sequence[Block], workers: Workers) -> None:
        self._runs, self._blocks, self._workers = list(runs), list(blocks), workers

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, places: int | slice) -> Any:
        return self._runs[places]

    def ask(self, function: Callable[..., Any], *arguments: Any, each: Sequence[tuple] = ()) -> list:
        """`function(run, *arguments)` of all runs, in their order; the function is a module's own.

        Args:
            each: further arguments, of each run; where they are fewer than the runs, the last runs are not asked.
        """
        given = each or [()] * len(self)
        return self._workers.map(function, [(run, *arguments, *own) for run, own in zip(self, given, strict=False)])

    def keep(self, name: str, array: np.ndarray) -> None:
        """Put an array where every worker can read it, by a name that ends in its type."""
        self[0].shelf.write_flat([{name: array.astype(name.rpartition(".")[2], copy=False)}])

    def sum_rows(
        self, form: Callable[[ItemRun, int, csr_matrix], tuple[np.ndarray, dict]], names: Sequence[str]
    ) -> None:
        """Have the rows summed and kept: the arrays that `form` makes of them, and where each row begins, `STARTS`.

        Args:
            form: a module's own, of a run and some of its `sums`: int64, how many elements of each row are stored, and the
                arrays by name.
            names: of the arrays.
        """
        lengths = np.concatenate(self.ask(_write_rows, self._blocks, form))
        self.keep(STARTS, np.concatenate([[0], np.cumsum(lengths)]))
        for name in names:
            self[0].shelf.join(name, [run.own(name) for run in self])


@contextmanager
def cut_into_runs(
    interactions: csr_matrix,
    weights: np.ndarray,
    item_degrees: np.ndarray,
    count: int,
    threads: int,
    options: FitOptions,
    name: str,
) -> Iterator[ItemRuns]:
    """The runs of a fit, at most `count`, over as many blocks of users; of about equal edges and items together.

    Args:
        weights: float64 (users,), `exact_degree_weights`.
        item_degrees: int64 (items,).
        name: of the model.
    """
    items = interactions.shape[1]
    starts = np.concatenate([[0], np.cumsum(item_degrees)])
    with cut_into_blocks(interactions, count, None, options, name) as blocks:
        blocks.begin({"weights": weights})
        bounds = np.unique(runs(starts, count, max(1, starts[-1] // items))).tolist()
        cut = [ItemRun(n, *ends, items, blocks[0].shelf, threads) for n, ends in enumerate(pairwise(bounds))]
        yield ItemRuns(cut, blocks, options.workers)


def held_by_runs(items: int, runs: int, weights: int, beside: int = 0) -> Sizes:
    """What a fit holds, for `models.memory`; the matrix lies in files, of which pages come and go.

    Args:
        weights: of an item, about, of which a run answers its own, and all are put together here.
        beside: bytes of a call that does something else than to sum rows.
    """
    answer, rows = 12 * weights * items // runs, -(-items // runs)
    call = max(3 * 12 * min(AT_ONCE, items * rows), beside) + 8 * items
    return Sizes(8, 0, answer, here=12 * weights * items + JOINED, call=call, edge=48)


def sums(run: ItemRun, blocks: Sequence[Block]) -> Iterator[tuple[int, csr_matrix]]:
    """sum_m w_m x_ma x_mb for the items a of a run and all b: a first item, and rows from there on, columns ascending."""
    threads = max(1, run.threads)
    with ThreadPoolExecutor(threads) as pool:
        for first, end in _at_once(run, blocks):
            bounds = np.unique(even_runs(end - first, threads)) + first
            parts = [_Part(*ends) for ends in pairwise(bounds.tolist())]
            for block in blocks:
                matrix = block.matrix(run.items)
                of_entries = np.repeat(block.read(0)["weights"], np.diff(matrix.indptr))
                weighted = csr_matrix((of_entries, matrix.indices, matrix.indptr), shape=matrix.shape)
                list(pool.map(partial(_Part.add, weighted=weighted), parts))
            for part in parts:
                total = part.total.tocsc().tocsr()  # sorted in linear time
                for rows in within(np.diff(total.indptr), PIECE):
                    yield part.first + rows.start, total[rows]


@dataclass
class _Part:
    """Rows of the items [first, end) that one thread sums."""

    first: int
    end: int
    total: csr_matrix | None = None

    def add(self, weighted: csr_matrix) -> None:
        """Add some users, whose edges have their weights as values."""
        own = weighted[:, self.first : self.end]
        own = csr_matrix((np.ones(own.nnz), own.indices, own.indptr), shape=own.shape)
        found = own.T.tocsr() @ weighted
        self.total = found if self.total is None else self.total + found


def _write_rows(run: ItemRun, blocks: Sequence[Block], form: Callable) -> np.ndarray:
    """The stored elements of each of the run's rows, int64; the rows themselves are written."""
    lengths = []

    def pieces() -> Iterator[dict]:
        for first, rows in sums(run, blocks):
            stored, arrays = form(run, first, rows)
            lengths.append(stored)
            yield arrays

    run.write(pieces())
    return np.concatenate(lengths)


def _at_once(run: ItemRun, blocks: Sequence[Block]) -> list[tuple[int, int]]:
    """(first, end) of the items whose rows are summed together, by a bound on their elements."""
    most = np.zeros(run.end - run.first)
    if len(most) * run.items <= AT_ONCE:
        return [(run.first, run.end)]
    for block in blocks:
        matrix = block.matrix(run.items)
        own = matrix[:, run.first : run.end]
        degrees = np.repeat(np.diff(matrix.indptr), np.diff(own.indptr))
        most += np.bincount(own.indices, weights=degrees, minlength=len(most))
    parts = within(np.minimum(most, run.items).astype(np.int64), AT_ONCE)
    return [(run.first + part.start, run.first + part.stop) for part in parts]
