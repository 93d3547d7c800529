"""The sparse Markov random field on many workers: the Gram matrix and its pattern by runs of items, then runs of its blocks.

`models.gram_runs` has the Gram matrix. The neighbours of an item depend on its row alone, and the inverse of one of the
paper's blocks (`models.mrf.sparse_blocks`) on nothing of another block. Workers compute these; the coordinator chooses
the threshold and the blocks, and averages the estimates in the order of the blocks. So the weights are those of one
machine to the bit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_matrix

from models.fitting import FitOptions
from models.gram_runs import STARTS, ItemRun, ItemRuns, cut_into_runs
from models.mrf.sparse_blocks import inverses, listed
from models.mrf.sparse_kernels import ItemBlocks
from models.mrf.sparse_pattern import Pattern, find_neighbours
from models.numerics.gram import GramRows, summed_rows
from models.numerics.rescaled_columns import Columns, Rescaling
from models.numerics.shards import even_runs
from models.numerics.shards import runs as cut

COLUMNS, SUMS, SHIFT, FACTOR = "columns.int32", "sums.float64", "shift.float64", "factor.float64"
ITEM_STARTS, INDPTR, INDICES = "item_starts.int64", "pattern_starts.int64", "pattern_items.int32"
INVERSES = "inverses.float32"
AT_ONCE = 1 << 25  # float32 numbers in the matrices of a batch, 128 MiB: rows that are read allow small ones


@contextmanager
def gram_by_runs(
    interactions: csr_matrix,
    moments: Columns,
    rescaled: Rescaling,
    item_degrees: np.ndarray,
    count: int,
    threads: int,
    options: FitOptions,
) -> Iterator[tuple[ItemRuns, GramRows]]:
    """The Gram matrix, its rows summed over `count` blocks of users by as many runs of items.

    Yields:
        The runs, and what the coordinator needs of the matrix. The sums stay in files, which it must not map: a network's
        disk would keep the folder.
    """
    shape = moments.weights, item_degrees, count, threads
    with cut_into_runs(interactions, *shape, options, "mrf_sparse") as runs:
        small = np.concatenate([[0], np.cumsum(item_degrees)]), rescaled.shift, rescaled.factor
        for name, array in zip((ITEM_STARTS, SHIFT, FACTOR), small, strict=True):
            runs.keep(name, array)
        runs.sum_rows(as_summed, (COLUMNS, SUMS))
        yield runs, summed_rows(*[np.zeros(0)] * 3, *small)


def as_summed(run: ItemRun, first: int, sums: csr_matrix) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Rows of X' diag(w) X from item `first` on, as they are."""
    return np.diff(sums.indptr).astype(np.int64), {COLUMNS: sums.indices.astype(np.int32), SUMS: sums.data}


def gram_of(run: ItemRun) -> GramRows:
    """The rows of all items, memory-mapped, for one call."""
    return summed_rows(*(run.read(name) for name in (STARTS, COLUMNS, SUMS, ITEM_STARTS, SHIFT, FACTOR)))


def neighbours_by_runs(
    runs: ItemRuns, gram: GramRows, rows: np.ndarray, threshold: float, max_in_column: int, threads: int
) -> tuple[np.ndarray, ...]:
    """As `models.mrf.sparse_pattern.find_neighbours`, some rows by each worker."""
    parts = [rows[first:end] for first, end in pairwise(even_runs(len(rows), min(len(runs), len(rows))))]
    answers = runs.ask(neighbours_of_rows, threshold, max_in_column, each=[(part,) for part in parts])
    return tuple(np.concatenate(arrays) for arrays in zip(*answers, strict=True))


def neighbours_of_rows(run: ItemRun, threshold: float, max_in_column: int, rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """The neighbours of some rows."""
    return find_neighbours(gram_of(run), rows, threshold, max_in_column, run.threads)


def inverses_by_runs(
    runs: ItemRuns, pattern: Pattern, leaders: np.ndarray, dependents: np.ndarray, l2: float
) -> Iterator[tuple[ItemBlocks, np.ndarray]]:
    """As `models.mrf.sparse_blocks.inverses`, but of runs of the list of blocks that take about as long as each other."""
    runs.keep(INDPTR, pattern.indptr)
    runs.keep(INDICES, pattern.indices)
    sizes = np.diff(pattern.indptr)[leaders].astype(float)
    load = np.cumsum([0.0, *(sizes**2 * (sizes / 3 + dependents))])
    bounds = np.unique(cut(load, len(runs)))
    parts = [(leaders[first:end], dependents[first:end]) for first, end in pairwise(bounds)]
    if parts:
        runs.ask(invert, l2, each=parts)
    for run, part in zip(runs, parts, strict=False):
        yield listed(pattern, *part), run.read(INVERSES, own=True)


def invert(run: ItemRun, l2: float, leaders: np.ndarray, dependents: np.ndarray) -> None:
    """Write the columns of the inverses of some blocks, one block after the other.

    Raises:
        ValueError: as `models.mrf.sparse_blocks.inverses`.
    """
    pattern = Pattern(run.read(INDPTR), run.read(INDICES), np.zeros(0), 0.0)
    found = inverses(gram_of(run), pattern, leaders, dependents, l2, run.threads, AT_ONCE)
    run.write({INVERSES: columns} for _, columns in found)
