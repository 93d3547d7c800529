"""The Gram matrix of the dense Markov random field by blocks of users (`models.user_blocks`).

Before it is centred and rescaled, a Gram matrix is a sum over users. Each block adds its users in float64, and the blocks
are added in float64; as sums of the users' weights are exact (`models.numerics.degree_weights`), so are these, and the
matrix has the bits of one machine. It travels in stripes of rows, so that the parts of all blocks take no more memory than
`AT_ONCE`, or a row each.
"""

import numpy as np
from scipy.sparse import csr_matrix

from models.fitting import FitOptions
from models.numerics.gram import gram_stripe
from models.numerics.rescaled_columns import Columns, Rescaling
from models.user_blocks import Block, added, cut_into_blocks

AT_ONCE = 1 << 28  # bytes of a stripe of all blocks


def gram_by_blocks(
    interactions: csr_matrix, moments: Columns, rescaled: Rescaling, count: int, threads: int, options: FitOptions
) -> np.ndarray:
    """The centred and rescaled Gram matrix as `models.numerics.gram.lower_gram` gives it, by `count` blocks of users.

    Returns:
        float32 (items, items); the numbers above the diagonal mean nothing.
    """
    items = interactions.shape[1]
    out = np.zeros((items, items), dtype=np.float32)
    with cut_into_blocks(interactions, count, threads, options, "mrf_dense") as blocks:
        blocks.begin({"weights": moments.weights})
        for first, end in stripes(items, len(blocks)):
            rows, others = slice(first, end), slice(0, end)
            total = added(blocks.ask(stripe, items, first, end))
            total -= np.outer(rescaled.shift[rows], rescaled.shift[others])
            total *= np.outer(rescaled.factor[rows], rescaled.factor[others])
            out[rows, others] = total
    return out


def stripes(items: int, blocks: int) -> list[tuple[int, int]]:
    """(first, end) of the runs of rows that travel at once."""
    height = max(1, AT_ONCE // (8 * items * blocks))
    return [(first, min(first + height, items)) for first in range(0, items, height)]


def stripe(block: Block, state: int, items: int, first: int, end: int) -> np.ndarray:
    """The block's part of rows `first` to `end` of the Gram matrix, float64 (end - first, end)."""
    return gram_stripe(block.matrix(items), block.read(state)["weights"], first, end, block.terms)
