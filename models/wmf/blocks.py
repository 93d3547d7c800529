"""Weighted matrix factorization by blocks of users.

A pass has two halves. The users are solved where they lie; then each item needs sums over its users, to which every block
adds its part (`models.wmf.sums`). So the fit is that of one machine, but for the rounding of these sums: each block adds
in float32, and here they are added in float64, in the order of the blocks. Conjugate gradients take an exchange for each
of their steps, of K numbers an item each way, and no matrix; the other solvers take one, of K (K + 3) / 2.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from scipy.sparse import csr_matrix

from models.fitting import FitOptions
from models.numerics.shards import even_runs
from models.user_blocks import Blocks, added, cut_into_blocks
from models.wmf import worker
from models.wmf.sides import RUNS, check_solved, table_of, weighted_gram
from models.wmf.sums import conjugate_gradients, solve_equations
from models.wmf.worker import Solved, Terms


@contextmanager
def begun(
    terms: Terms,
    users: np.ndarray,
    items: np.ndarray,
    weights: np.ndarray,
    interactions: csr_matrix,
    count: int,
    options: FitOptions,
) -> Iterator["BlocksFit"]:
    """A fit by `count` blocks at its beginning; its shelf in `options.scratch` goes when it ends, however it ends.

    Args:
        users, items: float32 (users, K) and (items, K), the first factors.
        weights: float64 (users,), of the users.
    """
    with cut_into_blocks(interactions, count, terms, options, "wmf") as blocks:
        blocks.begin({"factors": users, "weights": weights})
        del users  # they lie on disk
        yield BlocksFit(blocks, items, float(weights.sum()))


class BlocksFit:
    """The items' side of a fit by blocks.

    Attributes:
        items: float32 (items, K), updated in place.
    """

    def __init__(self, blocks: Blocks, items: np.ndarray, of_all_users: float) -> None:
        """`of_all_users` is the sum of the users' weights."""
        self.blocks, self.items, self.terms = blocks, items, blocks[0].terms
        answers = blocks.ask(worker.weigh, len(items))
        weights = added(of_items for of_items, _ in answers)
        self.constant = sum(constant for _, constant in answers)
        self.ridges = self.terms.loss.penalties(weights + self.terms.loss.unobserved * of_all_users)
        self.isolated = weights == 0

    def iterate(self) -> float:
        """Solve the users, then the items; returns the loss.

        Raises:
            ValueError: a system of equations is not positive definite in float32, or a factor is not finite.
        """
        gram = weighted_gram(table_of(self.items), self.terms.factors, None, self.terms.loss.unobserved)
        self.items[self.isolated] = 0
        answers = self.blocks.ask(worker.solve_users, self.items, gram, writes=True)
        users_gram = added(answer.gram for answer in answers).astype(np.float32)
        sums = added(answer.sums for answer in answers)
        value = self._improve(answers, sums, users_gram) if self.terms.solver.steps else self._solve(sums, users_gram)
        return value + self.constant + sum(answer.penalty for answer in answers)

    def _improve(self, answers: list[Solved], sums: np.ndarray, gram: np.ndarray) -> float:
        """Some steps of conjugate gradients; returns x'A x - 2 y'x, summed over the items."""

        def product(directions: np.ndarray) -> np.ndarray:
            return -added(self.blocks.ask(worker.multiply, directions))

        steps = self.terms.solver.steps
        self.items[:], value = conjugate_gradients(self.items, sums, gram, self.ridges, product, steps)
        check_solved(self.items)
        return value + sum(answer.value for answer in answers)

    def _solve(self, total: np.ndarray, gram: np.ndarray) -> float:
        """The solution, or one block of factors after another; returns x'A x - 2 y'x, summed over the items."""
        values = np.zeros(len(self.items))
        bounds = np.unique(even_runs(len(self.items), RUNS))
        solve_equations(self.items, total, gram, self.ridges, bounds, self.terms.solver.block, values)
        check_solved(values)
        return float(values.sum())
