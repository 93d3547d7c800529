"""One block of users of hierarchical Poisson factorization, wherever it is computed (`models.user_blocks`).

The users' shapes and rates lie with the block. Their update needs the items alone, and is that of one machine to the bit.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from models.hpf.ascent import Allocation, GammaFactors, GammaParameters, Prior, table
from models.numerics.threads import kernel_threads
from models.user_blocks import Block


@dataclass(frozen=True)
class Terms:
    """What of a model every block must know."""

    ones: bool
    prior: Prior
    threads: int


class Answer(NamedTuple):
    """What a block tells the items in an iteration.

    Attributes:
        sums: float32 (items, K), for each item the sum over its users of y / s times exp E log theta.
        log: the block's terms of sum_edges {y log s - log y!}, and row_bound those of sum_u R_u, before the update.
        before, after: float64 (K,), the sum over the users of E theta, before the update and after it.
    """

    sums: np.ndarray
    log: float
    row_bound: float
    before: np.ndarray
    after: np.ndarray


def update(block: Block, state: int, factors: np.ndarray, total: np.ndarray) -> Answer:
    """phi of the block's edges; then gamma and kappa of its users, who are written under `state` + 1.

    Args:
        factors: float32 (items, K), exp E log beta; total: float64 (K,), the sum over all items of E beta.
    """
    prior = block.terms.prior
    with kernel_threads(block.terms.threads):
        users = GammaFactors(prior, GammaParameters(**block.read(state)))
        phi = Allocation(block.matrix(len(factors)), block.terms.ones, prior.factors)
        log, row_bound, before = phi.allocate(users.factors, table(factors)), users.row_bound, users.total
        users.update(phi.user_sums[None], total)
    block.write(state + 1, users.posterior._asdict())
    sums = phi.item_sums.sum(axis=0, dtype=np.float64)[:, : prior.factors].astype(np.float32)
    return Answer(sums, log, row_bound, before, users.total)
