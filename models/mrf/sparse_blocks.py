"""Regression weights of a sparse Markov random field, from the small inverses of its blocks.

Steck, "Markov Random Fields for Collaborative Filtering", 2019, section 3.2. The covariances that the blocks need are
collected for one batch of blocks at a time, so that they take a fixed amount of memory.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numba import get_num_threads
from scipy.sparse import csc_matrix, csr_matrix

from oneclass.models.mrf.sparse_kernels import (
    ItemBlocks,
    ItemPositions,
    add_estimates,
    choose_blocks,
    fill_triangles,
    solve_inverse_columns,
)
from oneclass.models.mrf.sparse_pattern import Pattern
from oneclass.models.numerics.adjacency import as_read_only, partition_by_budget
from oneclass.models.numerics.gram import GramRows

BATCH_ENTRIES = 1 << 27  # float32 numbers in the matrices of a batch: 512 MiB; no bit depends on it


def plan_blocks(pattern: Pattern, r: float) -> tuple[np.ndarray, np.ndarray]:
    """Steps 1, 2 and 4: the leaders of the blocks and the size of each block's D, in the order of the list.

    The list begins with the items with the most neighbours; ties go to the larger diagonal, then to the lower id. D is
    the leader and the items with which it has the largest covariances, ceil(r size) of a block.

    Returns:
        int32 and int64 (blocks,). Items without a neighbour have no block.
    """
    sizes = np.diff(pattern.indptr)
    order = np.lexsort((-pattern.diagonal, -sizes))
    leaders, dependents = np.empty(len(order), dtype=np.int32), np.empty(len(order), dtype=np.int64)
    count = choose_blocks(
        as_read_only(order, np.int64),
        as_read_only(pattern.indptr, np.int64),
        as_read_only(pattern.indices, np.int32),
        float(r),
        leaders,
        dependents,
    )
    several = sizes[leaders[:count]] > 1
    return leaders[:count][several], dependents[:count][several]


def iterate_inverses(
    gram: GramRows,
    pattern: Pattern,
    leaders: np.ndarray,
    dependents: np.ndarray,
    l2: float,
) -> Iterator[tuple[ItemBlocks, np.ndarray]]:
    """Batches of blocks, each with the columns of their inverses, float32; those of a batch are overwritten by the
    next.

    Raises:
        ValueError: a block's matrix is not positive definite in float32.
    """
    all_sizes = np.diff(pattern.indptr)[leaders]
    numbers = all_sizes * (all_sizes + 1) // 2 + all_sizes * dependents
    batches = list(partition_by_budget(numbers, BATCH_ENTRIES))
    # all batches use the same memory, because the first access to a page is slow
    room = np.empty(max((numbers[batch].sum() for batch in batches), default=0), dtype=np.float32)
    workers = get_num_threads()
    for batch in batches:
        block, places = _sort_blocks(_list_blocks(pattern, leaders[batch], dependents[batch]), len(pattern.indptr) - 1)
        middle = block.triangles[-1]
        triangles, columns = room[:middle], room[middle : middle + block.columns[-1]]
        sound = np.empty(len(block.sizes), dtype=np.bool_)
        fill_triangles(gram, block, places, np.float32(l2), workers, triangles)
        solve_inverse_columns(block, workers, triangles, columns, sound)
        if not sound.all():
            raise ValueError(
                f"the covariances of the neighbours of item {leaders[batch][np.argmin(sound)]} "
                "(column) are not positive definite in float32: raise l2"
            )
        yield block, columns


def average_estimates(pattern: Pattern, solved: Iterable[tuple[ItemBlocks, np.ndarray]]) -> csc_matrix:
    """Step 3 and the averages: B of the rescaled columns.

    Args:
        solved: the blocks of the pattern with their inverses, in their order; it decides the order of sums in float32.

    Returns:
        float32 (items, items), at the entries of the pattern; 0 on the diagonal, and where no block estimates one.
    """
    indptr, indices = as_read_only(pattern.indptr, np.int64), as_read_only(pattern.indices, np.int32)
    sums = np.zeros(len(indices), dtype=np.float32)
    counts = np.zeros(len(sums), dtype=np.int32)
    for block, columns in solved:
        add_estimates(block, as_read_only(columns, np.float32), indptr, indices, get_num_threads(), sums, counts)
    items = len(pattern.indptr) - 1
    return csc_matrix((sums / np.maximum(counts, 1), indices, indptr), shape=(items, items))


def _starts(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)])


def _list_blocks(pattern: Pattern, leaders: np.ndarray, dependents: np.ndarray) -> ItemBlocks:
    """The blocks of these leaders, without the places of their items in ascending order.

    A block lists the items of its leader's column from the smallest covariance to the largest, the leader last.
    """
    sizes = np.diff(pattern.indptr)[leaders]
    starts = _starts(sizes)
    positions = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
    items = pattern.indices[np.repeat(pattern.indptr[leaders + 1] - 1, sizes) - positions]
    return ItemBlocks(
        starts,
        sizes,
        dependents,
        as_read_only(items, np.int32),
        as_read_only(np.zeros(0), np.int32),
        _starts(sizes * (sizes + 1) // 2),
        _starts(sizes * dependents),
    )


def _sort_blocks(blocks: ItemBlocks, items: int) -> tuple[ItemBlocks, ItemPositions]:
    """The blocks with their items' places in ascending order, and where each of all `items` stands in them."""
    starts, sizes = blocks.first, blocks.sizes
    positions = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
    shape = len(sizes), items
    ascending = csr_matrix((positions, blocks.listed, starts), shape=shape).tocsc().tocsr()
    entries = np.arange(starts[-1], dtype=np.int64)
    by_item = csr_matrix((entries, ascending.indices, ascending.indptr), shape=shape).tocsc()
    degrees = np.diff(by_item.indptr)
    order = np.argsort(-degrees, kind="stable")[: np.count_nonzero(degrees)]
    return blocks._replace(positions=as_read_only(ascending.data, np.int32)), ItemPositions(
        as_read_only(order, np.int64),
        as_read_only(by_item.indptr, np.int64),
        as_read_only(by_item.data, np.int64),
        as_read_only(ascending.indices, np.uint32),
        as_read_only(np.repeat(np.arange(len(sizes)), sizes), np.int32),
    )
