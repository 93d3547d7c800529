"""Which items are neighbours: the large entries of the items' covariance, found row by row, never held dense.

Steck, "Markov Random Fields for Collaborative Filtering", 2019, section 3.1.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit, prange

from models.numerics.gram import GramRows
from models.numerics.products import read_only
from models.numerics.selection import largest
from models.numerics.threads import kernel_threads

ROOM = 1 << 23  # entries of a chunk of rows: 96 MB
SAMPLE = 2048  # rows from which a threshold is guessed for a density
STRIP = 64  # items whose covariances are compared with the threshold together, before each by itself
MARGIN = 1.5  # entries looked for under that guess, of those wanted


@dataclass(frozen=True)
class Pattern:
    """The sparsity pattern A by columns; not symmetric where columns were cut at their largest entries.

    Attributes:
        indptr: int64 (items + 1,).
        indices: int32, a column's item itself, then its neighbours, the largest covariance in absolute value
            first, ties to the lower id.
        diagonal: float64 (items,), of the rescaled covariance matrix, without l2.
        threshold: the covariance in absolute value above which entries were kept.
    """

    indptr: np.ndarray
    indices: np.ndarray
    diagonal: np.ndarray
    threshold: float


def above(gram: GramRows, threshold: float, max_in_column: int, threads: int) -> Pattern:
    """Entries of more than `threshold`, of each column the `max_in_column` largest, the diagonal among them."""
    rows = np.arange(len(gram.factor))
    return _pattern(*_largest(gram, rows, threshold, max_in_column, threads), threshold)


def of_density(gram: GramRows, density: float, max_in_column: int, threads: int) -> Pattern:
    """The pattern of the lowest threshold at which at most `density` of all entries are kept, diagonal included.

    A threshold is guessed from a sample of rows, some more entries than wanted are collected above it, and the
    exact one is found among those.
    """
    items = len(gram.factor)
    wanted = max(0, int(density * items * items) - items)
    sample = np.argsort(-np.diff(gram.item_indptr), kind="stable")[:: max(1, items // SAMPLE)]
    seen = _largest(gram, sample, 0.0, max_in_column, threads)[2]
    guessed = int(MARGIN * wanted * len(sample) / items) + 1
    while True:
        guess = float(np.partition(seen, -guessed)[-guessed]) if guessed < len(seen) else 0.0
        counts, neighbours, values, diagonal = _largest(gram, np.arange(items), guess, max_in_column, threads)
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


def _largest(
    gram: GramRows, rows: np.ndarray, threshold: float, max_in_column: int, threads: int
) -> tuple[np.ndarray, ...]:
    """Of each row, the neighbours above the threshold, at most `max_in_column` - 1, largest first.

    Returns:
        (counts, neighbours, values, diagonal): int64 (rows,); int32 and float32, the rows' one after the other,
        values in absolute value; float64 (rows,).
    """
    items = len(gram.factor)
    width = max(1, min(max_in_column, items) - 1)
    most = min(max_in_column, items) - 1
    counts, diagonal = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows))
    neighbours, values = [], []
    chunk = max(1, ROOM // width)
    found = np.empty((min(chunk, len(rows)), width), dtype=np.int32)
    sizes = np.empty(found.shape, dtype=np.float32)
    for start in range(0, len(rows), chunk):
        part = slice(start, min(start + chunk, len(rows)))
        with kernel_threads(threads):
            _collect(
                gram,
                read_only(rows[part], np.int64),
                threshold,
                most,
                max(1, threads),
                counts[part],
                found,
                sizes,
                diagonal[part],
            )
        filled = np.arange(width) < counts[part, None]
        neighbours.append(found[: len(filled)][filled])
        values.append(sizes[: len(filled)][filled])
    return counts, np.concatenate(neighbours), np.concatenate(values), diagonal


@njit(cache=True)
def _keep(sizes, others, count, most, found, values):
    """The `most` largest of `count` candidates, in descending order; ties to the lower id. Returns how many."""
    taken = count
    if count > most:
        cut = largest(sizes[:count].copy(), most)
        room = most - np.count_nonzero(sizes[:count] > cut)
        taken = 0
        for at in range(count):
            if sizes[at] > cut or (sizes[at] == cut and room > 0):
                room -= sizes[at] == cut
                sizes[taken], others[taken] = sizes[at], others[at]
                taken += 1
    order = np.argsort(-sizes[:taken], kind="mergesort")
    for at in range(taken):
        found[at] = others[order[at]]
        values[at] = sizes[order[at]]
    return taken


@njit(cache=True, fastmath={"nnan", "nsz"})
def _fill_strip(row, shift, factor, own_shift, own_factor, strip):
    """Covariances in absolute value, without a branch; returns the largest."""
    for at in range(len(row)):
        strip[at] = abs(own_factor * factor[at] * (row[at] - own_shift * shift[at]))
    largest = np.float32(0)
    for at in range(len(row)):
        largest = max(largest, strip[at])
    return largest


@njit(parallel=True, cache=True)
def _collect(gram, rows, threshold, most, workers, counts, found, values, diagonal):
    """The neighbours of some rows of a `GramRows`; `workers` deal themselves the rows in turn."""
    indptr, indices, item_indptr, item_users, _, weights, shift, factor = gram
    items = len(factor)
    for worker in prange(workers):
        row = np.zeros(items)
        sizes = np.empty(items, dtype=np.float32)
        others = np.empty(items, dtype=np.int32)
        strip = np.empty(STRIP, dtype=np.float32)
        for turn in range(worker, len(rows), workers):
            item = rows[turn]
            row[:] = 0.0
            for at in range(item_indptr[item], item_indptr[item + 1]):
                user = item_users[at]
                weight = weights[user]
                for entry in range(indptr[user], indptr[user + 1]):
                    row[indices[entry]] += weight
            diagonal[turn] = factor[item] * factor[item] * (row[item] - shift[item] * shift[item])
            count = np.int64(0)  # a bare 0 would have `_keep` compiled for itself too
            for start in range(0, items, STRIP):
                stop = min(start + STRIP, items)
                if (
                    _fill_strip(
                        row[start:stop], shift[start:stop], factor[start:stop], shift[item], factor[item], strip
                    )
                    > threshold
                ):
                    for at in range(stop - start):
                        if strip[at] > threshold and start + at != item:
                            sizes[count], others[count] = strip[at], start + at
                            count += 1
            counts[turn] = 0 if most == 0 else _keep(sizes, others, count, most, found[turn], values[turn])
