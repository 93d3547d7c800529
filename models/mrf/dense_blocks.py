"""The Gram matrix of the dense Markov random field by blocks of users (`models.distributed`).

Before it is centred and rescaled, a Gram matrix is a sum over users. Each block adds its users in float64, and the
blocks are added in float64; as sums of the users' weights are exact (`models.numerics.exact_weights`), so are these,
and the matrix has the bits of one machine. It travels in stripes of rows, so that the parts of all blocks take no more
memory than `AT_ONCE`, or a row each.
"""

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.distributed import UserBlock, add_arrays, partition_users
from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.column_scaling import ColumnMoments, Rescaling
from oneclass.models.numerics.gram import gram_stripe

STRIPE_BYTES = 1 << 28  # bytes of a stripe of all blocks


def compute_gram_by_blocks(
    interactions: csr_matrix, moments: ColumnMoments, rescaled: Rescaling, count: int, threads: int, options: FitOptions
) -> np.ndarray:
    """The centred and rescaled Gram matrix as `models.numerics.gram.lower_gram` gives it, by `count` blocks of users.

    Returns:
        float32 (items, items); the numbers above the diagonal mean nothing.
    """
    items = interactions.shape[1]
    out = np.zeros((items, items), dtype=np.float32)
    with partition_users(interactions, count, threads, options, "mrf_dense") as blocks:
        blocks.write_users({"weights": moments.weights})
        for first, end in partition_stripes(items, len(blocks)):
            rows, others = slice(first, end), slice(0, end)
            total = add_arrays(blocks.map_blocks(sum_stripe, items, first, end))
            total -= np.outer(rescaled.shift[rows], rescaled.shift[others])
            total *= np.outer(rescaled.factor[rows], rescaled.factor[others])
            out[rows, others] = total
    return out


def partition_stripes(items: int, blocks: int) -> list[tuple[int, int]]:
    """(first, end) of the runs of rows that travel at once."""
    height = max(1, STRIPE_BYTES // (8 * items * blocks))
    return [(first, min(first + height, items)) for first in range(0, items, height)]


def sum_stripe(block: UserBlock, state: int, items: int, first: int, end: int) -> np.ndarray:
    """The block's part of rows `first` to `end` of the Gram matrix, float64 (end - first, end)."""
    return gram_stripe(block.matrix(items), block.read(state)["weights"], first, end, block.config)
