"""SLIM on many workers: the rows of the Gram matrix, and then the columns of weights, by runs of items (`models.gram_runs`).

A column's regression reads the rows of its candidates, whatever run they are of; no column reads another's weights. So
the weights are those of one machine to the bit.
"""

from functools import partial

import numpy as np
from scipy.sparse import csr_matrix

from models.fitting import FitOptions
from models.gram_runs import STARTS, ItemRun, cut_into_runs
from models.numerics.rescaled_columns import Columns
from models.numerics.threads import kernel_threads
from models.slim.columns import ColumnWeights, Gram, Regression, batches, solved
from models.slim.kernels import DENSE

COLUMNS, VALUES, FACTOR, DIAGONAL = "columns.uint32", "values.float32", "factor.float64", "diagonal.float32"


def columns_by_runs(
    interactions: csr_matrix,
    moments: Columns,
    item_degrees: np.ndarray,
    scaled: tuple[np.ndarray, np.ndarray],
    regression: Regression,
    count: int,
    threads: int,
    options: FitOptions,
) -> ColumnWeights:
    """The weights of all columns, by `count` blocks of users and as many runs of items.

    Args:
        scaled: the factor of each row and column of the Gram matrix, float64 (items,), and its diagonal, float32.
    """
    shape = moments.weights, item_degrees, count, threads
    with cut_into_runs(interactions, *shape, options, "slim") as runs:
        for name, array in zip((FACTOR, DIAGONAL), scaled, strict=True):
            runs.keep(name, array)
        runs.sum_rows(rescaled, (COLUMNS, VALUES))
        return ColumnWeights.joined(runs.ask(solve_run, regression))


def rescaled(run: ItemRun, first: int, sums: csr_matrix) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Rows of X' diag(w) X from item `first` on, as `models.slim.kernels.fill_pairs` stores them, with its arithmetic."""
    factor, counts = run.read(FACTOR), np.diff(sums.indptr).astype(np.int64)
    dense = DENSE * counts > run.items
    stored = np.where(dense, run.items, counts)
    rows = np.repeat(np.arange(len(counts)), counts)
    ranks = np.arange(sums.nnz) - sums.indptr[rows]
    places = (np.cumsum(stored) - stored)[rows] + np.where(dense[rows], sums.indices, ranks)
    columns, values = np.zeros(stored.sum(), dtype=np.uint32), np.zeros(stored.sum(), dtype=np.float32)
    columns[places], values[places] = sums.indices, factor[first + rows] * factor[sums.indices] * sums.data
    return stored, {COLUMNS: columns, VALUES: values}


def solve_run(run: ItemRun, regression: Regression) -> ColumnWeights:
    """The weights of the run's columns."""
    gram = Gram(*(run.read(name) for name in (STARTS, COLUMNS, VALUES)))
    with kernel_threads(run.threads):
        solve = partial(solved, gram=gram, diagonal=run.read(DIAGONAL), regression=regression, threads=run.threads)
        return ColumnWeights.joined([solve(*batch) for batch in batches(gram, regression, run.first, run.end)])
