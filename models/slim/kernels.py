"""Kernels of SLIM: the sparse Gram matrix, and coordinate descent for one column of weights at a time.

The gradient of a column is g_j - G w, where G and w are not negative, so that it never exceeds g_j. So an item can have
a weight in column j only if g_ij > l1; this is exact, not a heuristic. These items are the *candidates* of the column.
The descent runs over an active set of candidates. The rows of G of the active items, cut to the candidates, are stored
densely in one buffer, the columns of the active items first. The candidates that would gain most join the set, until no
candidate would move.
"""

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.adjacency import nth_smallest
from oneclass.models.numerics.gram import add_row

DENSE_RATIO = 4  # a row of the Gram matrix is stored dense if more than one in so many of its elements is not zero
FIRST_ACTIVE = 16  # items in the first active set; later the set at most doubles at a time


@njit(parallel=True, nogil=True, cache=True)
def count_pairs(rows, workers, out):
    """Fill `out`, int64 (items,), with the number of elements to store of each row of the Gram matrix.

    These are its nonzeros, or all elements if the row is stored dense. `rows` are its `GramRows`.
    """
    for worker in prange(workers):
        last = np.full(len(out), -1, dtype=np.int32)
        for item in range(worker, len(out), workers):
            count = 0
            for at in range(rows.item_indptr[item], rows.item_indptr[item + 1]):
                user = rows.item_users[at]
                for entry in range(rows.indptr[user], rows.indptr[user + 1]):
                    other = rows.indices[entry]
                    count += last[other] != item
                    last[other] = item
            out[item] = len(out) if DENSE_RATIO * count > len(out) else count


@njit(parallel=True, nogil=True, cache=True)
def fill_pairs(rows, workers, gram):
    """The Gram matrix, factor_a factor_b sum_m w_m x_ma x_mb, for the pairs of items that share a user.

    Args:
        rows: its `GramRows`.
        gram: (starts int64 (items + 1,), from the counts; columns uint32, ascending, and values float32, filled here).
            A row with as many elements as there are items is dense: its values are in the order of the items, and its
            columns are not filled.
    """
    starts, columns, values = gram
    factor = rows.factor
    for worker in prange(workers):
        total = np.zeros(len(factor))
        for item in range(worker, len(factor), workers):
            whole = starts[item + 1] - starts[item] == len(factor)
            at = starts[item]
            if whole:
                add_row(rows, item, total, False)
            else:
                for place in range(rows.item_indptr[item], rows.item_indptr[item + 1]):
                    user = rows.item_users[place]
                    weight = rows.weights[user]
                    for entry in range(rows.indptr[user], rows.indptr[user + 1]):
                        other = rows.indices[entry]
                        if total[other] == 0.0:
                            columns[at] = other
                            at += 1
                        total[other] += weight
                columns[starts[item] : at] = np.sort(columns[starts[item] : at])
            for at in range(starts[item], starts[item + 1]):
                other = np.int64(at - starts[item] if whole else columns[at])
                values[at] = factor[item] * factor[other] * total[other]
                total[other] = 0.0


@njit(parallel=True, nogil=True, cache=True)
def count_candidates(gram, sizes, l1, out):
    """Fill `out`, int64, with the number of candidates of each column, an upper bound on its weights."""
    starts, columns, values = gram
    for place in prange(len(out)):
        column = np.int64(place)
        whole = starts[column + 1] - starts[column] == len(starts) - 1
        count = 0
        for at in range(starts[column], starts[column + 1]):
            item = np.int64(at - starts[column] if whole else columns[at])
            count += values[at] > l1 and (item != column or sizes[item] > 1)
        out[place] = count


@njit(parallel=True, nogil=True, cache=True)
def solve_columns(first, last, gram, diagonal, sizes, penalties, limits, workers, solved):
    """Fill in the weights of the columns first .. last - 1.

    Args:
        gram: (starts, columns, values), symmetric, read-only. diagonal: float32 (items,), of the Gram matrix.
        sizes: int64 (items,), of how many equal items each is one; l2 of a weight is divided by the number of these but
            the column's own, and only a column of several has a weight of its own item.
        penalties: (l1, l2), float32.
        limits: (tolerance float32, the largest number of passes), constants of `models.slim.columns`.
        solved: (starts int64 (columns,), where the weights of each column begin in rows, int32, and weights, float32;
            found int64 (columns, 2): the number of weights, and 1 where the last pass ended the descent).
    """
    starts, rows, weights, found = solved
    for worker in prange(workers):
        place = np.zeros(len(diagonal), dtype=np.uint32)  # the place of a candidate; 0 for any other item
        buffer = np.empty(1 << 16, dtype=np.float32)
        for column in range(first + worker, last, workers):
            items, target = _find_candidates(column, gram, sizes, penalties[0])
            for at in range(1, len(items)):
                place[items[at]] = at
            solution, buffer, settled = _descend(items, target, place, gram, diagonal, sizes, penalties, limits, buffer)
            to = starts[column - first]
            for at in range(1, len(items)):
                place[items[at]] = 0
                if solution[at] > 0:
                    rows[to], weights[to] = items[at], solution[at]
                    to += 1
            found[column - first, 0] = to - starts[column - first]
            found[column - first, 1] = not settled


@njit(cache=True)
def _find_candidates(column, gram, sizes, l1):
    """(items, target): a column's candidates, ascending, and their g_ij, from place 1 on; place 0 is for all others."""
    starts, columns, values = gram
    first, count = starts[column], starts[column + 1] - starts[column]
    whole = count == len(starts) - 1
    items = np.empty(count + 1, dtype=np.uint32)
    target = np.zeros(count + 1, dtype=np.float32)
    items[0] = column
    last = 0
    for at in range(count):
        item = np.int64(at if whole else columns[first + at])
        if values[first + at] > l1 and (item != column or sizes[item] > 1):
            last += 1
            items[last], target[last] = item, values[first + at]
    return items[: last + 1], target[: last + 1]


@njit(cache=True, fastmath={"contract"})
def _descend(items, target, place, gram, diagonal, sizes, penalties, limits, buffer):
    """Coordinate descent on w'G w / 2 - g_j'w + sum ridge_i w_i^2 / 2 + l1 sum w over w >= 0; for ridge see `sizes`.

    `items` and `target`, and with them `place`, are reordered so that the active items come first.

    Returns:
        (weights float32, by place; the buffer, or a larger one if it was too small; whether the descent has ended: no
            weight would move by more than the tolerance).
    """
    width = len(items)
    weights = np.zeros(width, dtype=np.float32)
    gradient, curvature = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    ridge = np.empty(width, dtype=np.float32)
    for at in range(width):
        others = sizes[items[at]] - (items[at] == items[0])
        ridge[at] = penalties[1] / np.float32(max(others, 1))
        gradient[at], curvature[at] = target[at], diagonal[items[at]] + ridge[at]
    state = target, gradient, curvature, ridge
    active, passes = np.int64(0), limits[1]  # with a bare 0, numba would compile `_admit` for a second type
    while True:
        before = active
        active = _admit(state, items, place, before, penalties[0], limits[0], buffer)
        if active == before or passes == 0:
            return weights, buffer, active == before
        if active * width > len(buffer):
            larger = np.empty(active * width * 5 // 4, dtype=np.float32)  # the set may grow again
            for at in range(before * width):
                larger[at] = buffer[at]
            buffer = larger
        _load_gram_rows(items, place, gram, before, active, buffer)
        passes = _repeat_passes(weights, state, active, buffer, penalties[0], limits[0], passes)
        for at in range(width):
            gradient[at] = target[at]
        for at in range(active):
            weight = weights[at + 1]
            if weight > 0:
                row = buffer[at * width : (at + 1) * width]
                for other in range(width):
                    gradient[other] -= weight * row[other]


@njit(cache=True)
def _admit(state, items, place, active, l1, tolerance, buffer):
    """Move the candidates that would gain most to the places after the active items; returns the new number of
    these.
    """
    _, gradient, curvature, _ = state
    width = len(items)
    gains = np.empty(width, dtype=np.float32)
    count = 0
    for at in range(active + 1, width):
        slope = gradient[at] - l1
        if slope > tolerance * curvature[at]:
            gains[count] = slope * slope / curvature[at]
            count += 1
    room = max(FIRST_ACTIVE, active)
    least = nth_smallest(gains[:count], count - room) if count > room else np.float32(0.0)
    rows = active
    for at in range(active + 1, width):
        slope = gradient[at] - l1
        if slope > tolerance * curvature[at] and slope * slope / curvature[at] >= least:
            active += 1
            for values in state:
                values[at], values[active] = values[active], values[at]
            items[at], items[active] = items[active], items[at]
            place[items[at]], place[items[active]] = at, active
            for row in range(0, rows * width, width):
                buffer[row + at], buffer[row + active] = buffer[row + active], buffer[row + at]
    return active


@njit(cache=True)
def _load_gram_rows(items, place, gram, first, last, buffer):
    """Copy rows of the Gram matrix into the buffer: of the active items first .. last - 1, cut to the candidates."""
    starts, columns, values = gram
    width = len(items)
    for at in range(first, last):
        row = buffer[at * width : (at + 1) * width]
        item = items[at + 1]
        source = values[starts[item] : starts[item + 1]]
        if len(source) == len(place):
            for to in range(width):
                row[to] = source[items[to]]
        else:
            row[:] = 0
            for entry in range(len(source)):
                row[place[columns[starts[item] + entry]]] = source[entry]


@njit(cache=True, fastmath={"contract"})
def _repeat_passes(weights, state, active, buffer, l1, tolerance, passes):
    """Pass over the active items until none moves by more than the tolerance; returns how many passes are left.

    After each pass the weights are multiplied by the factor that lowers the loss most: where items share their users,
    their common size is what passes alone find slowly.
    """
    (target, gradient, curvature, ridge), width = state, len(weights)
    while passes > 0:
        passes -= 1
        largest = np.float32(0.0)
        for at in range(1, active + 1):
            before = weights[at]
            after = max(np.float32(0.0), before + (gradient[at] - l1 - ridge[at] * before) / curvature[at])
            step = after - before
            if step != 0:
                weights[at] = after
                row = buffer[(at - 1) * width : (at - 1) * width + active + 1]
                largest = max(largest, abs(step))
                for other in range(active + 1):
                    gradient[other] -= step * row[other]
        if largest <= tolerance:
            break
        gain, square = np.float32(0.0), np.float32(0.0)
        for at in range(1, active + 1):
            gain += weights[at] * (target[at] - l1)
            square += weights[at] * (target[at] - gradient[at] + ridge[at] * weights[at])
        if square > 0:
            factor = gain / square
            for at in range(active + 1):
                weights[at] *= factor
                gradient[at] = target[at] - factor * (target[at] - gradient[at])
    return passes
