"""The sparse Gaussian Markov random field: regression weights between neighbours only, from many small inverses.

Steck, "Markov Random Fields for Collaborative Filtering", 2019, section 3. Two items are neighbours if the covariance
of their rescaled columns, before l2 is added, is large in absolute value. `models.mrf.sparse_pattern` finds the pattern
of neighbours (section 3.1). At r = 0 every column is the ridge regression of its item on its neighbours. As the
threshold falls, the weights approach those of `mrf_dense`.

A block is an item i, its leader, together with the neighbours N of i. It estimates the columns of the set D: of i and
of the neighbours with the largest covariances. As in the notebook of the paper's author, D has ceil(r (1 + |N|))
items, at least i itself, and weights outside the pattern are dropped; steps 2 and 3 of the text take 1 + round(r |N|)
items and keep these weights. At r = 0 the two are the same. An entry that several blocks estimate is the average of
their estimates (end of section 3.2).
"""

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import ClassVar, Self

import numpy as np
from numba import get_num_threads
from pydantic import Field
from scipy.sparse import csc_matrix, csr_matrix

from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.item_weights import MAX_CHUNK_ENTRIES, ItemWeights
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.mrf.dense import MRFSettings
from oneclass.models.mrf.sparse_kernels import (
    ItemBlocks,
    ItemPositions,
    add_estimates,
    choose_blocks,
    fill_triangles,
    solve_inverse_columns,
)
from oneclass.models.mrf.sparse_pattern import Pattern, pattern_of_density
from oneclass.models.numerics.adjacency import as_read_only, partition_by_budget
from oneclass.models.numerics.column_moments import ColumnMoments, Rescaling, column_moments, rescale_columns
from oneclass.models.numerics.gram import GramRows, gram_rows
from oneclass.models.settings import Choice, NumericRange, SearchSpace

BATCH_ENTRIES = 1 << 27  # float32 numbers in the matrices of a batch: 512 MiB; no bit depends on it
DEFAULT_NEIGHBOURS = 200  # entries of the pattern for each item
MAX_IN_COLUMN = 1000  # entries of a column of the pattern, with the diagonal; the largest stay
EDGE_BYTES = 40  # of an edge in the arrays of `GramRows` and while they are made
ENTRY_BYTES = 40  # of an entry of the pattern: as found, and its weight by columns and by rows
CANDIDATE_BYTES = 12  # of an entry of the rows that are collected at a time


class MRFSparseSettings(MRFSettings):
    """The defaults were chosen on validation users of seven logs; the paper's l2 for the Million Song Dataset is 1."""

    search_space: ClassVar[SearchSpace] = {
        **MRFSettings.search_space,
        "density": NumericRange(0.005, 0.1, log=True, manual_only=True),
        "r": Choice((0.0, 0.1, 0.5), manual_only=True),
    }

    density: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Share of the entries of the covariance matrix, with the diagonal, that are in the pattern: the "
        "largest share that does not exceed this. By default 200 entries an item.",
    )
    r: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Share of a block whose columns are estimated at once: 0 solves one block for "
        "every item, larger values fewer blocks, less exactly.",
    )

    def resolve(self, interactions: csr_matrix) -> Self:
        """Derive l2 and the density from the data."""
        found = super().resolve(interactions)
        if self.density is None:
            found = found.model_copy(update={"density": min(1.0, DEFAULT_NEIGHBOURS / interactions.shape[1])})
        return found


class MRFSparse(ItemWeights[MRFSparseSettings]):
    """Score by sparse item-item regression weights between neighbours, for catalogues of many items.

    Steck (2019), section 3; the pattern is that of section 3.1, the weights those of section 3.2.

    Attributes:
        weights: float32 (items, items) CSR, B without its zeros; row j is added to the scores of a user who likes j.
        offset: float32 (items,), added to every user's scores; mu - mu B with an intercept, else zeros.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import MRFSparse
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = MRFSparse(density=0.5).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "mrf_sparse"
    Settings = MRFSparseSettings
    is_deterministic = True

    @classmethod
    def estimate_cost(cls, settings: MRFSparseSettings, log: LogSize) -> FitCost:
        """Estimate the cost of a fit: the log by user and by item, the pattern with its weights, and a batch."""
        wanted = DEFAULT_NEIGHBOURS * log.items if settings.density is None else settings.density * log.items**2
        kept = min(wanted, MAX_IN_COLUMN * log.items, log.gram_entries)
        batch = min(BATCH_ENTRIES, kept**2 / log.items)  # half the squares of the blocks' sizes, which are skewed
        chunk = min(MAX_CHUNK_ENTRIES, min(MAX_IN_COLUMN, log.items) * log.items)
        size = EDGE_BYTES * log.edges + int(ENTRY_BYTES * kept + 4 * batch) + CANDIDATE_BYTES * chunk
        return FitCost(size, 1e-5 * log.edges, depends_on_items=True, remedy="lower mrf_sparse.density")

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        started = perf_counter()
        moments = column_moments(interactions, self.params.user_weight_exponent)
        rescaled = rescale_columns(moments, self.params.alpha, self.params.centred, self.params.popularity_discount)
        pattern, table = self._solve(interactions, moments, rescaled)
        table.data *= np.repeat(rescaled.back, np.diff(table.indptr)) / rescaled.scale[table.indices]
        table = table.tocsr()
        table.eliminate_zeros()
        self.weights = table
        self.offset = np.zeros(self.item_count, dtype=np.float32)
        if self.params.intercept:
            self.offset[:] = moments.mean * rescaled.back / rescaled.scale - moments.mean @ table
        table.data = table.data.astype(np.float32)
        density = len(pattern.indices) / self.item_count**2
        options.on_epoch(Epoch(1, 1, perf_counter() - started, {"threshold": pattern.threshold, "density": density}))

    def _solve(
        self, interactions: csr_matrix, moments: ColumnMoments, rescaled: Rescaling
    ) -> tuple[Pattern, csc_matrix]:
        """Find the pattern, and B of the rescaled columns."""
        gram = gram_rows(interactions, moments.weights, rescaled.shift, rescaled.factor)
        assert self.params.l2 is not None and self.params.density is not None  # by `resolve`
        pattern = pattern_of_density(gram, self.params.density, MAX_IN_COLUMN)
        chosen = plan_blocks(pattern, self.params.r)
        solved = iterate_inverses(gram, pattern, *chosen, self.params.l2)
        return pattern, average_estimates(pattern, solved)


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
        block, places = _lay_out_blocks(pattern, leaders[batch], dependents[batch])
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


def _lay_out_blocks(pattern: Pattern, leaders: np.ndarray, dependents: np.ndarray) -> tuple[ItemBlocks, ItemPositions]:
    """Return the blocks of these leaders, and where each item stands in them.

    A block lists the items of its leader's column from the smallest covariance to the largest, the leader last.
    """
    sizes = np.diff(pattern.indptr)[leaders]
    starts, shape = _starts(sizes), (len(sizes), len(pattern.indptr) - 1)
    positions = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
    listed = pattern.indices[np.repeat(pattern.indptr[leaders + 1] - 1, sizes) - positions]
    ascending = csr_matrix((positions, listed, starts), shape=shape).tocsc().tocsr()
    entries = np.arange(starts[-1], dtype=np.int64)
    by_item = csr_matrix((entries, ascending.indices, ascending.indptr), shape=shape).tocsc()
    degrees = np.diff(by_item.indptr)
    order = np.argsort(-degrees, kind="stable")[: np.count_nonzero(degrees)]
    blocks = ItemBlocks(
        starts,
        sizes,
        dependents,
        as_read_only(listed, np.int32),
        as_read_only(ascending.data, np.int32),
        _starts(sizes * (sizes + 1) // 2),
        _starts(sizes * dependents),
    )
    return blocks, ItemPositions(
        as_read_only(order, np.int64),
        as_read_only(by_item.indptr, np.int64),
        as_read_only(by_item.data, np.int64),
        as_read_only(ascending.indices, np.uint32),
        as_read_only(np.repeat(np.arange(len(sizes)), sizes), np.int32),
    )
