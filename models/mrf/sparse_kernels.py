"""Blocks of a sparse Markov random field: their covariances, their Cholesky factors, and columns of their inverses.

A block is a list of items, the last d of which are the paper's set D. Its covariances wait in a triangle, row after
row, the items in ascending order, so that what a row of the Gram matrix gives lies together. Every number is computed
by one thread in one order, so that the bits do not depend on how many threads there are.
"""

import numpy as np
from numba import njit, prange

ORDERED = {"contract"}
REORDERED = {"contract", "reassoc"}  # sums in lanes; NaN is still NaN


@njit(cache=True)
def choose_blocks(order, indptr, indices, r, as_in_paper, leaders, dependents):
    """Steps 1, 2 and 4 of section 3.2: the items that lead a block, and the size of each D. Returns how many.

    `order` is the list L; `indices` of a column begin with its item, the largest covariances next. D is the
    first 1 + round(r (size - 1)) of them as in the paper, else ceil(r size), at least the item itself.
    """
    done = np.zeros(len(order), dtype=np.bool_)
    count = 0
    for item in order:
        if done[item]:
            continue
        size = indptr[item + 1] - indptr[item]
        taken = 1 + int(np.rint(r * (size - 1))) if as_in_paper else max(1, int(np.ceil(r * size)))
        for at in range(indptr[item], indptr[item] + taken):
            done[indices[at]] = True
        leaders[count], dependents[count] = item, taken
        count += 1
    return count


@njit(parallel=True, cache=True)
def fill(
    indptr,
    indices,
    item_indptr,
    item_users,
    item_entries,
    weights,
    shift,
    factor,
    order,
    place_indptr,
    places,
    members,
    block_of,
    first,
    offsets,
    l2,
    workers,
    triangles,
):
    """Covariances between the members of every block, l2 on the diagonal, into the blocks' lower triangles.

    A row of the Gram matrix is summed once, up to its diagonal, and dealt out to all blocks that its item is in.

    Args:
        indptr ... factor: those of `gram.row_arguments`.
        order: items that are in some block.
        place_indptr, places: for each item, its entries in `members`.
        members, block_of: for each entry its item and its block; a block's entries lie together, in ascending
            order of items.
        first, offsets: for each block, its first entry, and where its triangle begins.
    """
    for worker in prange(workers):
        row = np.zeros(len(factor))
        values = np.empty(len(factor), dtype=np.float32)
        for turn in range(worker, len(order), workers):
            item = order[turn]
            terms = 0
            for at in range(item_indptr[item], item_indptr[item + 1]):
                user = item_users[at]
                weight = weights[user]
                terms += item_entries[at] + 1 - indptr[user]
                for entry in range(indptr[user], item_entries[at] + 1):
                    row[indices[entry]] += weight
            wanted = 0
            for at in range(place_indptr[item], place_indptr[item + 1]):
                wanted += places[at] + 1 - first[block_of[places[at]]]
            if wanted > item:  # else only what is wanted, where it is wanted
                for other in range(item + 1):
                    values[other] = factor[item] * factor[other] * (row[other] - shift[item] * shift[other])
            for at in range(place_indptr[item], place_indptr[item + 1]):
                place = places[at]
                start, offset = first[block_of[place]], offsets[block_of[place]]
                rank = place - start
                offset += rank * (rank + 1) // 2
                others, target = members[start : place + 1], triangles[offset : offset + rank + 1]
                if wanted <= item:
                    _centre(row, others, shift, factor, item, values)
                _gather(values, others, target)
                target[rank] += l2
            if terms > item:
                row[: item + 1] = 0.0
            else:
                for at in range(item_indptr[item], item_indptr[item + 1]):
                    for entry in range(indptr[item_users[at]], item_entries[at] + 1):
                        row[indices[entry]] = 0.0


@njit(cache=True)
def _centre(row, others, shift, factor, item, values):
    for other in others:
        values[other] = factor[item] * factor[other] * (row[other] - shift[item] * shift[other])


@njit(cache=True)
def _gather(values, members, target):
    for at in range(len(members)):
        target[at] = values[members[at]]


@njit(parallel=True, cache=True)
def solve(first, sizes, dependents, offsets, positions, column_offsets, workers, triangles, columns, sound):
    """Columns of the blocks' inverses, (d, size) each, in `columns`.

    `positions` are where a block's items, in ascending order, stand in its list. `sound` becomes false for a
    block whose matrix is not positive definite in float32.
    """
    most = sizes.max()
    for worker in prange(workers):
        room = np.zeros(most * most, dtype=np.float32)
        for block in range(worker, len(sizes), workers):
            size, d = sizes[block], dependents[block]
            upper = room[: size * size].reshape(size, size)
            at = offsets[block]
            for rank in range(size):
                row = positions[first[block] + rank]
                for other_rank in range(rank + 1):
                    column = positions[first[block] + other_rank]
                    upper[min(row, column), max(row, column)] = triangles[at]
                    at += 1
            inverse = columns[column_offsets[block] : column_offsets[block] + d * size].reshape(d, size)
            sound[block] = _factor(upper)
            if sound[block]:
                _last_columns(upper, inverse)


@njit(cache=True, fastmath=ORDERED)
def _factor(a):
    """A = U'U in place, four rows at a time, each minus all rows above it. Returns whether A is positive definite."""
    n = len(a)
    for k in range(0, n, 4):
        rows = min(4, n - k)
        for above in range(0, k, 4):
            if rows == 4:
                _subtract_four(a, above, k)
            else:
                for m in range(above, above + 4):
                    for row in range(k, n):
                        for column in range(row, n):
                            a[row, column] -= a[m, row] * a[m, column]
        for row in range(k, k + rows):
            for m in range(k, row):
                share = a[m, row]
                for column in range(row, n):
                    a[row, column] -= share * a[m, column]
            if not a[row, row] > 0:
                return False
            scale = np.float32(1) / np.sqrt(a[row, row])
            for column in range(row, n):
                a[row, column] *= scale
    return True


@njit(cache=True, fastmath=ORDERED)
def _subtract_four(a, m, k):
    """Rows k .. k+3 of A, from column k on, minus what rows m .. m+3 of U give."""
    p, q, r, s = a[m, k:], a[m + 1, k:], a[m + 2, k:], a[m + 3, k:]
    w, x, y, z = a[k, k:], a[k + 1, k:], a[k + 2, k:], a[k + 3, k:]
    p0, p1, p2, p3 = p[0], p[1], p[2], p[3]
    q0, q1, q2, q3 = q[0], q[1], q[2], q[3]
    r0, r1, r2, r3 = r[0], r[1], r[2], r[3]
    s0, s1, s2, s3 = s[0], s[1], s[2], s[3]
    for c in range(len(p)):
        pc, qc, rc, sc = p[c], q[c], r[c], s[c]
        w[c] = (((w[c] - p0 * pc) - q0 * qc) - r0 * rc) - s0 * sc
        x[c] = (((x[c] - p1 * pc) - q1 * qc) - r1 * rc) - s1 * sc
        y[c] = (((y[c] - p2 * pc) - q2 * qc) - r2 * rc) - s2 * sc
        z[c] = (((z[c] - p3 * pc) - q3 * qc) - r3 * rc) - s3 * sc


@njit(cache=True)
def _last_columns(u, inverse):
    """The last d columns of (U'U)^-1, one a row of `inverse` (d, n): U'Y = E forward, U X = Y backward."""
    d, n = inverse.shape
    start = n - d
    inverse[:] = 0
    for c in range(d):
        y = inverse[c]
        y[start + c] = 1
        for k in range(start + c, n):
            y[k] /= u[k, k]
            value = y[k]
            for column in range(k + 1, n):
                y[column] -= value * u[k, column]
    for k in range(n - 1, -1, -1):
        tail = u[k, k + 1 :]
        scale = np.float32(1) / u[k, k]
        fours = d - d % 4
        for c in range(0, fours, 4):
            _four_dots(tail, inverse, c, k, scale)
        for c in range(fours, d):
            inverse[c, k] = (inverse[c, k] - _dot(tail, inverse[c, k + 1 :])) * scale


@njit(cache=True, fastmath=REORDERED)
def _dot(one, other):
    total = np.float32(0)
    for at in range(len(one)):
        total += one[at] * other[at]
    return total


@njit(cache=True, fastmath=REORDERED)
def _four_dots(tail, inverse, c, k, scale):
    """Element k of four columns of the inverse, from those behind it."""
    w, x, y, z = inverse[c, k + 1 :], inverse[c + 1, k + 1 :], inverse[c + 2, k + 1 :], inverse[c + 3, k + 1 :]
    a, b, e, f = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    for at in range(len(tail)):
        t = tail[at]
        a += t * w[at]
        b += t * x[at]
        e += t * y[at]
        f += t * z[at]
    inverse[c, k] = (inverse[c, k] - a) * scale
    inverse[c + 1, k] = (inverse[c + 1, k] - b) * scale
    inverse[c + 2, k] = (inverse[c + 2, k] - e) * scale
    inverse[c + 3, k] = (inverse[c + 3, k] - f) * scale


@njit(parallel=True, cache=True)
def accumulate(first, sizes, dependents, column_offsets, listed, columns, indptr, indices, workers, sums, counts):
    """Add the blocks' estimates -C_ji / C_ii to the pattern's entries, block after block in every column.

    `listed` are the blocks' items in the order of positions, so that D comes last. Column i belongs to the
    worker i modulo their number. `indptr` and `indices` are the entries to keep, by columns; other estimates
    are left out.
    """
    for worker in prange(workers):
        place = np.full(len(indptr) - 1, -1, dtype=np.int32)
        for block in range(len(sizes)):
            size, d = sizes[block], dependents[block]
            items = listed[first[block] : first[block] + size]
            for position in range(size):
                place[items[position]] = position
            for c in range(d):
                item = items[size - d + c]
                if item % workers != worker:
                    continue
                start = column_offsets[block] + c * size
                own = columns[start + size - d + c]
                for entry in range(indptr[item], indptr[item + 1]):
                    position = place[indices[entry]]
                    if position >= 0 and indices[entry] != item:
                        sums[entry] -= columns[start + position] / own
                        counts[entry] += 1
            for position in range(size):
                place[items[position]] = -1
