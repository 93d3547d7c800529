"""Hierarchical Poisson factorization by blocks of users.

With exp E log beta and the sum of E beta, a block can update its users. An item needs two sums: over its own users, of
y / s times exp E log theta, and over all users, of E theta. So in an iteration K numbers an item go each way, and a few
sums of K. The fit is that of one machine, but for the rounding of an item's sums: each block sends its part in float32, and
these are added in float64, in the order of the blocks.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from scipy.sparse import csr_matrix

from models.fitting import FitOptions
from models.hpf import worker
from models.hpf.ascent import GammaFactors
from models.hpf.worker import Answer, Terms
from models.user_blocks import Blocks, added, cut_into_blocks


@contextmanager
def begun(
    terms: Terms, users: GammaFactors, items: GammaFactors, interactions: csr_matrix, count: int, options: FitOptions
) -> Iterator["BlocksAscent"]:
    """A fit by `count` blocks at its beginning, `users` and `items`; its shelf in `options.scratch` goes when it ends."""
    with cut_into_blocks(interactions, count, terms, options, "hpf") as blocks:
        blocks.begin(users.posterior._asdict())
        del users  # they lie on disk
        yield BlocksAscent(blocks, items)


class BlocksAscent:
    """The items' side of a fit by blocks; its steps are those of `models.hpf.ascent.Ascent`.

    Attributes:
        items: the Gamma factors of q for the items.
    """

    def __init__(self, blocks: Blocks, items: GammaFactors) -> None:
        self.blocks, self.items = blocks, items

    def iterate(self) -> float:
        """phi; gamma, kappa; lambda, tau. Returns the bound after phi."""
        K = self.items.prior.factors
        factors = np.ascontiguousarray(self.items.factors[:, :K])
        answers: list[Answer] = self.blocks.ask(worker.update, factors, self.items.total, writes=True)
        rates = added(answer.before for answer in answers) @ self.items.total
        bound = sum(answer.log + answer.row_bound for answer in answers) + self.items.row_bound - rates
        self.items.update(np.stack([answer.sums for answer in answers]), added(answer.after for answer in answers))
        return float(bound)
