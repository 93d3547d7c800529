"""Which items are neighbours: the large entries of the items' covariance matrix, found row by row.

Steck, "Markov Random Fields for Collaborative Filtering", 2019, section 3.1.
"""

from dataclasses import dataclass

import numpy as np
from numba import get_num_threads, njit, prange

from oneclass.models.item_weights import collect_weights
from oneclass.models.numerics.adjacency import as_read_only, find_largest
from oneclass.models.numerics.gram import GramRows, add_row, rescale_row

SAMPLE_ROWS = 2048  # rows from which a threshold is guessed for a density
SAMPLE_MARGIN = 1.5  # the guess aims at so many times the wanted number of entries


@dataclass(frozen=True)
class Pattern:
    """The sparsity pattern A, by columns. It is not symmetric if columns were cut to their largest entries.

    Attributes:
        indptr: int64 (items + 1,).
        indices: int32; in each column the item itself, then its neighbours, by descending absolute covariance, of
            equal ones the lower id first.
        diagonal: float64 (items,), of the rescaled covariance matrix in float32, without l2.
        threshold: the absolute covariance above which entries were kept.
    """

    indptr: np.ndarray
    indices: np.ndarray
    diagonal: np.ndarray
    threshold: float


def find_neighbours(
    gram: GramRows, rows: np.ndarray, threshold: float, max_in_column: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The neighbours of each row above the threshold, at most `max_in_column` - 1, largest first.

    Returns:
        Their absolute covariances, float32, and their ids, int32, row after row; where each row begins, and its
        diagonal, float64 (rows,).
    """
    rows, diagonal = as_read_only(rows, np.int64), np.zeros(len(rows))

    def find(first: int, counts: np.ndarray, ids: np.ndarray, values: np.ndarray) -> None:
        some = slice(first, first + len(counts))
        _collect_neighbours(gram, rows[some], threshold, get_num_threads(), counts, ids, values, diagonal[some])

    return *collect_weights(len(rows), min(max_in_column, len(gram.factor)) - 1, find), diagonal


def pattern_of_density(gram: GramRows, density: float, max_in_column: int) -> Pattern:
    """The pattern with the lowest threshold that keeps at most the share `density` of all entries, with the diagonal.

    A threshold is guessed from a sample of rows, so that somewhat more entries than wanted lie above it. These are
    collected, and the exact threshold is found among them.
    """
    items = len(gram.factor)
    wanted = max(0, int(density * items * items) - items)
    sample = np.argsort(-np.diff(gram.item_indptr), kind="stable")[:: max(1, items // SAMPLE_ROWS)]
    seen = find_neighbours(gram, sample, 0.0, max_in_column)[0]
    guessed = int(SAMPLE_MARGIN * wanted * len(sample) / items) + 1
    while True:
        guess = float(np.partition(seen, -guessed)[-guessed]) if guessed < len(seen) else 0.0
        values, neighbours, starts, diagonal = find_neighbours(gram, np.arange(items), guess, max_in_column)
        if len(values) > wanted or guess == 0:
            break
        guessed *= 2
    threshold = guess if len(values) <= wanted else float(np.partition(values, -wanted - 1)[-wanted - 1])
    kept = values > threshold
    ends = np.cumsum(np.concatenate([[0], kept]))
    return _pattern(np.diff(ends[starts]), neighbours[kept], diagonal, threshold)


def _pattern(counts: np.ndarray, neighbours: np.ndarray, diagonal: np.ndarray, threshold: float) -> Pattern:
    """Put each item itself in front of its neighbours."""
    indptr = np.concatenate([[0], np.cumsum(counts + 1)])
    indices = np.empty(indptr[-1], dtype=np.int32)
    own = np.zeros(len(indices), dtype=bool)
    own[indptr[:-1]] = True
    indices[own] = np.arange(len(counts))
    indices[~own] = neighbours
    return Pattern(indptr, indices, diagonal, threshold)


@njit(parallel=True, nogil=True, cache=True)
def _collect_neighbours(gram, rows, threshold, workers, counts, ids, values, diagonal):
    """Find the neighbours of some rows of a `GramRows`; worker w takes the rows w, w + workers, ...

    Of equal covariances the lower id comes first.
    """
    items = len(gram.factor)
    for worker in prange(workers):
        total, row = np.zeros(items), np.empty(items, dtype=np.float32)
        sizes, others = np.empty(items, dtype=np.float32), np.empty(items, dtype=np.int32)
        for turn in range(worker, len(rows), workers):
            item = rows[turn]
            total[:] = 0.0
            add_row(gram, item, total, False)
            rescale_row(gram, item, total, row)
            diagonal[turn] = row[item]
            count = 0
            for other in range(items):
                if abs(row[other]) > threshold and other != item:
                    sizes[count], others[count] = abs(row[other]), other
                    count += 1
            kept = find_largest(sizes[:count], ids.shape[1])
            order = kept[np.argsort(-sizes[kept], kind="mergesort")]
            counts[turn] = len(order)
            for at in range(len(order)):
                ids[turn, at], values[turn, at] = others[order[at]], sizes[order[at]]
