"""Blocks of a sparse Markov random field: their covariances, columns of their inverses, and the estimates from these.

A block is a list of items, whose last d items are the paper's set D. Its covariances are stored as a triangle, row
after row, with the items in ascending order, so that the numbers from one row of the Gram matrix lie together. One
thread computes each number, in a fixed order, so that the bits do not depend on the number of threads.
"""

from typing import NamedTuple

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.gram import add_row
from oneclass.models.numerics.simd import F32_WIDTH, ROWS, add_scaled, aligned_zeros, pad_width, scale
from oneclass.models.numerics.simd_rows import add_product

STRICT = {"contract", "nsz"}


class ItemBlocks(NamedTuple):
    """The blocks of a batch; the items of a block lie together in the arrays of items.

    Attributes:
        first: int64 (blocks + 1,), where each block's items begin.
        sizes, dependents: int64 (blocks,), how many items each block has, and how many of them, the last ones, are D.
        listed: int32 (items of all blocks,), the items in the order of the blocks' matrices.
        positions: int32, for the items of each block in ascending order, their places in the block's part of `listed`.
        triangles, columns: int64 (blocks + 1,), where the blocks' triangles, and the columns of their inverses, begin.
    """

    first: np.ndarray
    sizes: np.ndarray
    dependents: np.ndarray
    listed: np.ndarray
    positions: np.ndarray
    triangles: np.ndarray
    columns: np.ndarray


class ItemPositions(NamedTuple):
    """Where each item lies in the blocks of a batch.

    Attributes:
        order: int64, the items that are in at least one block, those in the most blocks first.
        indptr, entries: int64, for each item its entries in `members`.
        members, block_of: uint32 and int32, for each entry its item and its block. The entries of a block lie together,
            in ascending order of items.
    """

    order: np.ndarray
    indptr: np.ndarray
    entries: np.ndarray
    members: np.ndarray
    block_of: np.ndarray


@njit(cache=True, nogil=True)
def choose_blocks(order, indptr, indices, r, leaders, dependents):
    """Steps 1, 2 and 4 of section 3.2: fill in the leaders of the blocks and the size of each D; returns how many.

    `order` is the list L. The `indices` of a column begin with its own item; then come the largest covariances. D is
    the first ceil(r size) of them, at least the item itself.
    """
    done = np.zeros(len(order), dtype=np.bool_)
    count = 0
    for item in order:
        if done[item]:
            continue
        size = indptr[item + 1] - indptr[item]
        taken = max(1, int(np.ceil(r * size)))
        for at in range(indptr[item], indptr[item] + taken):
            done[indices[at]] = True
        leaders[count], dependents[count] = item, taken
        count += 1
    return count


@njit(parallel=True, nogil=True, cache=True)
def fill_triangles(gram, blocks, places, l2, workers, triangles):
    """Fill the lower triangles of all blocks with the covariances between their members, plus l2 on the diagonal.

    Each row of the Gram matrix is summed once, up to its diagonal, and copied to all blocks that contain its item.
    Arguments: a `GramRows`; `ItemBlocks` and their `ItemPositions`; `triangles` is float32, of the length that the
    blocks need.
    """
    shift, factor = gram.shift, gram.factor
    order, place_indptr, entries, members, block_of = places
    first, offsets = blocks.first, blocks.triangles
    for worker in prange(workers):
        row = np.zeros(len(factor))
        for turn in range(worker, len(order), workers):
            item = order[turn]
            row[: item + 1] = 0.0
            add_row(gram, item, row, True)
            for at in range(place_indptr[item], place_indptr[item + 1]):
                place = entries[at]
                start, offset = first[block_of[place]], offsets[block_of[place]]
                rank = place - start
                offset += rank * (rank + 1) // 2
                others, target = members[start : place + 1], triangles[offset : offset + rank + 1]
                for to in range(rank + 1):
                    other = others[to]
                    target[to] = factor[item] * factor[other] * (row[other] - shift[item] * shift[other])
                target[rank] += l2


@njit(cache=True, fastmath=STRICT)
def factorize(matrix, size):
    """Replace the upper triangle of -A by the factor U of A = U'U; returns False if A is not positive definite.

    Works on ROWS rows at a time: first subtracts what the rows above contribute, in tiles, then factorizes these rows.
    """
    for first in range(0, size, ROWS):
        begin = first // F32_WIDTH * F32_WIDTH
        for lane in range(begin, size, F32_WIDTH):
            add_product(matrix, first * size + lane, size, matrix, first, 1, size, matrix, lane, size, first)
        for row in range(first, first + ROWS):
            for above in range(first, row):
                factor = matrix[above * size + row]
                add_scaled(matrix, row * size + begin, factor, matrix, above * size + begin, size - begin)
            pivot = -matrix[row * size + row]
            if not pivot > 0:
                return False
            factor = np.float32(-1) / np.sqrt(pivot)
            scale(matrix, row * size + begin, factor, matrix, row * size + begin, size - begin)
    return True


@njit(cache=True, fastmath=STRICT)
def invert_last_columns(factor, size, work, inverse):
    """Fill the rows of `inverse` (d, n) with the last d columns of (U'U)^-1: solve U'Y = E forward, U X = Y backward.

    Args:
        factor: U by `factorize`, whose rows and columns from n to `size` are those of the identity.
        work: float32, flat, n rows filled up to a multiple of ROWS, each of d numbers filled up to a multiple of
            F32_WIDTH; minus Y, then X.
    """
    d, n = inverse.shape
    width = pad_width(d)
    work[: pad_width(n, ROWS) * width] = 0
    for row in range(n - d, n):
        work[row * width + row - (n - d)] = -1
        for above in range(n - d, row):
            add_scaled(work, row * width, -factor[above * size + row], work, above * width, width)
        scale(work, row * width, np.float32(1) / factor[row * size + row], work, row * width, width)
    for first in range((n - 1) // ROWS * ROWS, -1, -ROWS):
        end = min(first + ROWS, n)
        for lane in range(0, width, F32_WIDTH):
            at = first * width + lane
            add_product(work, at, width, factor, first * size + end, size, 1, work, end * width + lane, width, n - end)
        for row in range(end - 1, first - 1, -1):
            for below in range(row + 1, end):
                add_scaled(work, row * width, factor[row * size + below], work, below * width, width)
            scale(work, row * width, np.float32(-1) / factor[row * size + row], work, row * width, width)
    for row in range(n):
        for c in range(d):
            inverse[c, row] = work[row * width + c]


@njit(parallel=True, nogil=True, cache=True)
def solve_inverse_columns(blocks, workers, triangles, columns, sound):
    """Fill `columns` with the last d columns of each block's inverse, (d, size), from the `triangles` of `fill`.

    `sound` is set to false for a block whose matrix is not positive definite in float32.
    """
    first, sizes, dependents, _, positions, offsets, column_offsets = blocks
    most, most_dependents = 0, 0
    for block in range(len(sizes)):
        most, most_dependents = max(most, pad_width(sizes[block])), max(most_dependents, pad_width(dependents[block]))
    for worker in prange(workers):
        matrix, work = aligned_zeros(most * most), aligned_zeros(most * most_dependents)
        for block in range(worker, len(sizes), workers):
            size, d = pad_width(sizes[block]), dependents[block]
            at = offsets[block]
            for rank in range(sizes[block]):
                row = positions[first[block] + rank]
                matrix[row * size + sizes[block] : (row + 1) * size] = 0
                for other_rank in range(rank + 1):
                    column = positions[first[block] + other_rank]
                    matrix[min(row, column) * size + max(row, column)] = -triangles[at]
                    at += 1
            for row in range(sizes[block], size):  # the identity
                matrix[row * size + row : (row + 1) * size] = 0
                matrix[row * size + row] = -1
            sound[block] = factorize(matrix, size)
            if sound[block]:
                inverse = columns[column_offsets[block] : column_offsets[block] + d * sizes[block]]
                invert_last_columns(matrix, size, work, inverse.reshape(d, sizes[block]))


@njit(parallel=True, nogil=True, cache=True)
def add_estimates(blocks, columns, indptr, indices, workers, sums, counts):
    """Add the estimates -C_ji / C_ii of `ItemBlocks` to `sums`, and count them; in each column, block after block.

    Worker w sums the columns i with i % workers = w. `indptr` and `indices` are the entries to keep, by columns; other
    estimates are dropped.
    """
    first, sizes, dependents, listed, _, _, column_offsets = blocks
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
