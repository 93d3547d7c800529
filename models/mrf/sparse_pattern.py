"""Which items are neighbours: the large entries of the items' covariance matrix, found row by row.

Steck, "Markov Random Fields for Collaborative Filtering", 2019, section 3.1.
"""

from dataclasses import dataclass

import numpy as np
from numba import get_num_threads, njit, prange

from oneclass.models.numerics.adjacency import as_read_only, find_largest
from oneclass.models.numerics.gram import GramRows, add_row, rescale_row

CANDIDATE_ENTRIES = 1 << 23  # entries of a chunk of rows: 96 MB
SAMPLE_ROWS = 2048  # rows from which a threshold is guessed for a density
STRIP_ITEMS = 64  # items whose largest covariance is compared with the threshold first; then each item, if it is above
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
        (counts, neighbours, values, diagonal): int64 (rows,), the number of neighbours; int32 and float32, the
        neighbours of all rows, row after row, and their absolute covariances; float64 (rows,).
    """
    items = len(gram.factor)
    width = max(1, min(max_in_column, items) - 1)
    most = min(max_in_column, items) - 1
    counts, diagonal = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows))
    neighbours, values = [], []
    chunk = max(1, CANDIDATE_ENTRIES // width)
    found = np.empty((min(chunk, len(rows)), width), dtype=np.int32)
    sizes = np.empty(found.shape, dtype=np.float32)
    for start in range(0, len(rows), chunk):
        part = slice(start, min(start + chunk, len(rows)))
        _collect_neighbours(
            gram,
            as_read_only(rows[part], np.int64),
            threshold,
            most,
            get_num_threads(),
            counts[part],
            found,
            sizes,
            diagonal[part],
        )
        filled = np.arange(width) < counts[part, None]
        neighbours.append(found[: len(filled)][filled])
        values.append(sizes[: len(filled)][filled])
    return counts, np.concatenate(neighbours), np.concatenate(values), diagonal


def pattern_of_density(gram: GramRows, density: float, max_in_column: int) -> Pattern:
    """The pattern with the lowest threshold that keeps at most the share `density` of all entries, with the diagonal.

    A threshold is guessed from a sample of rows, so that somewhat more entries than wanted lie above it. These are
    collected, and the exact threshold is found among them.
    """
    items = len(gram.factor)
    wanted = max(0, int(density * items * items) - items)
    sample = np.argsort(-np.diff(gram.item_indptr), kind="stable")[:: max(1, items // SAMPLE_ROWS)]
    seen = find_neighbours(gram, sample, 0.0, max_in_column)[2]
    guessed = int(SAMPLE_MARGIN * wanted * len(sample) / items) + 1
    while True:
        guess = float(np.partition(seen, -guessed)[-guessed]) if guessed < len(seen) else 0.0
        counts, neighbours, values, diagonal = find_neighbours(gram, np.arange(items), guess, max_in_column)
        if len(values) > wanted or guess == 0:
            break
        guessed *= 2
    threshold = guess if len(values) <= wanted else float(np.partition(values, -wanted - 1)[-wanted - 1])
    kept = values > threshold
    ends = np.cumsum(np.concatenate([[0], kept]))
    counts = np.diff(ends[np.concatenate([[0], np.cumsum(counts)])])
    return _pattern(counts, neighbours[kept], values, diagonal, threshold)


def _pattern(
    counts: np.ndarray, neighbours: np.ndarray, values: np.ndarray, diagonal: np.ndarray, threshold: float
) -> Pattern:
    """Put each item itself in front of its neighbours."""
    indptr = np.concatenate([[0], np.cumsum(counts + 1)])
    indices = np.empty(indptr[-1], dtype=np.int32)
    own = np.zeros(len(indices), dtype=bool)
    own[indptr[:-1]] = True
    indices[own] = np.arange(len(counts))
    indices[~own] = neighbours
    return Pattern(indptr, indices, diagonal, threshold)


@njit(cache=True)
def _select_largest(sizes, others, count, most, found, values):
    """Keep the `most` largest of `count` candidates, in descending order; returns their number.

    Of equal candidates the lower id comes first.
    """
    kept = find_largest(sizes[:count], most)
    order = kept[np.argsort(-sizes[kept], kind="mergesort")]
    for at in range(len(order)):
        found[at], values[at] = others[order[at]], sizes[order[at]]
    return len(order)


@njit(cache=True, fastmath={"nnan", "nsz"})
def _fill_strip(row, strip):
    """Fill `strip` with absolute covariances, in loops without a branch; returns the largest."""
    largest = np.float32(0)
    for at in range(len(row)):
        strip[at] = abs(row[at])
        largest = max(largest, strip[at])
    return largest


@njit(parallel=True, nogil=True, cache=True)
def _collect_neighbours(gram, rows, threshold, most, workers, counts, found, values, diagonal):
    """Find the neighbours of some rows of a `GramRows`; worker w takes the rows w, w + workers, ..."""
    items = len(gram.factor)
    for worker in prange(workers):
        total, row = np.zeros(items), np.empty(items, dtype=np.float32)
        sizes = np.empty(items, dtype=np.float32)
        others = np.empty(items, dtype=np.int32)
        strip = np.empty(STRIP_ITEMS, dtype=np.float32)
        for turn in range(worker, len(rows), workers):
            item = rows[turn]
            total[:] = 0.0
            add_row(gram, item, total)
            rescale_row(gram, item, total, row)
            diagonal[turn] = row[item]
            count = np.int64(0)  # with a bare 0, numba would compile `_keep` for a second type
            for start in range(0, items, STRIP_ITEMS):
                stop = min(start + STRIP_ITEMS, items)
                if _fill_strip(row[start:stop], strip) > threshold:
                    for at in range(stop - start):
                        if strip[at] > threshold and start + at != item:
                            sizes[count], others[count] = strip[at], start + at
                            count += 1
            counts[turn] = 0 if most == 0 else _select_largest(sizes, others, count, most, found[turn], values[turn])
