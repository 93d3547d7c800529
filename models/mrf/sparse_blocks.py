"""Regression weights of a sparse Markov random field, from the small inverses of its blocks.

Steck, "Markov Random Fields for Collaborative Filtering", 2019, section 3.2. The covariances that the blocks need
are summed for a batch of blocks at a time, so that what is held at once has a fixed size.
"""

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_matrix

from models.mrf.sparse_kernels import Blocks, Places, accumulate, choose_blocks, fill, solve
from models.mrf.sparse_pattern import Pattern
from models.numerics.gram import GramRows
from models.numerics.products import read_only
from models.numerics.threads import kernel_threads

ROOM = 1 << 27  # float32 numbers in the matrices of a batch: 512 MiB


def blocks(pattern: Pattern, r: float) -> tuple[np.ndarray, np.ndarray]:
    """Steps 1, 2 and 4: the items that lead a block and the size of each block's D, in the order of the list.

    The list begins with the items of most neighbours, ties by the diagonal, then by id. D is the leader and the
    items of its largest covariances, ceil(r size) in all.

    Returns:
        int32 and int64 (blocks,); items without a neighbour lead none.
    """
    sizes = np.diff(pattern.indptr)
    order = np.lexsort((-pattern.diagonal, -sizes))
    leaders, dependents = np.empty(len(order), dtype=np.int32), np.empty(len(order), dtype=np.int64)
    count = choose_blocks(
        read_only(order, np.int64),
        read_only(pattern.indptr, np.int64),
        read_only(pattern.indices, np.int32),
        float(r),
        leaders,
        dependents,
    )
    several = sizes[leaders[:count]] > 1
    return leaders[:count][several], dependents[:count][several]


def estimates(gram: GramRows, pattern: Pattern, r: float, l2: float, threads: int) -> np.ndarray:
    """Step 3 and the averages: B on the rescaled columns, at the entries of the pattern.

    An entry that no block estimates is 0, as is the diagonal.

    Returns:
        float32, beside `pattern.indices`.

    Raises:
        ValueError: a block's matrix is not positive definite in float32.
    """
    sums = np.zeros(len(pattern.indices), dtype=np.float32)
    counts = np.zeros(len(sums), dtype=np.int32)
    indptr, indices = read_only(pattern.indptr, np.int64), read_only(pattern.indices, np.int32)
    leaders, dependents = blocks(pattern, r)
    all_sizes = np.diff(pattern.indptr)[leaders]
    numbers = all_sizes * (all_sizes + 1) // 2 + all_sizes * dependents
    batches = list(_batches(numbers))
    # one piece of memory for all batches, since touching a page for the first time is dear
    room = np.empty(max((numbers[batch].sum() for batch in batches), default=0), dtype=np.float32)
    workers = max(1, threads)
    for batch in batches:
        block, places = _laid_out(pattern, leaders[batch], all_sizes[batch], dependents[batch])
        middle = block.triangles[-1]
        triangles, columns = room[:middle], room[middle : middle + block.columns[-1]]
        sound = np.empty(len(block.sizes), dtype=np.bool_)
        with kernel_threads(threads):
            fill(gram, block, places, np.float32(l2), workers, triangles)
            solve(block, workers, triangles, columns, sound)
            if not sound.all():
                raise ValueError(
                    f"the covariances of the neighbours of item {leaders[batch][np.argmin(sound)]} "
                    "(column) are not positive definite in float32: raise l2"
                )
            accumulate(block, columns, indptr, indices, workers, sums, counts)
    return sums / np.maximum(counts, 1)


def _starts(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)])


def _batches(numbers: np.ndarray) -> Iterator[slice]:
    """Runs of blocks of which the numbers fill ROOM at most, or that are a single block."""
    ends = np.cumsum(numbers)
    start = 0
    while start < len(numbers):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + ROOM, side="right")))
        yield slice(start, stop)
        start = stop


def _laid_out(
    pattern: Pattern, leaders: np.ndarray, sizes: np.ndarray, dependents: np.ndarray
) -> tuple[Blocks, Places]:
    """The blocks of a batch, and where each item stands in them.

    A block lists the items of its leader's column from the smallest covariance to the largest, the leader last.
    """
    items, starts = len(pattern.indptr) - 1, _starts(sizes)
    positions = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
    listed = pattern.indices[np.repeat(pattern.indptr[leaders + 1] - 1, sizes) - positions]
    shape = len(leaders), items
    ascending = csr_matrix((positions, listed, starts), shape=shape).tocsc().tocsr()
    entries = np.arange(starts[-1], dtype=np.int64)
    by_item = csr_matrix((entries, ascending.indices, ascending.indptr), shape=shape).tocsc()
    degrees = np.diff(by_item.indptr)
    order = np.argsort(-degrees, kind="stable")[: np.count_nonzero(degrees)]
    blocks = Blocks(
        starts,
        sizes,
        dependents,
        read_only(listed, np.int32),
        read_only(ascending.data, np.int32),
        _starts(sizes * (sizes + 1) // 2),
        _starts(sizes * dependents),
    )
    return blocks, Places(
        read_only(order, np.int64),
        read_only(by_item.indptr, np.int64),
        read_only(by_item.data, np.int64),
        read_only(ascending.indices, np.uint32),
        read_only(np.repeat(np.arange(len(leaders)), sizes), np.int32),
    )
