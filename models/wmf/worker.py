"""One block of users of weighted matrix factorization, wherever it is computed (`models.user_blocks`).

The users' factors and weights lie with the block. A user's solution needs the items alone, and is that of one machine to
the bit.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from models.numerics.lanes import padded
from models.numerics.shards import runs
from models.numerics.threads import kernel_threads
from models.user_blocks import Block
from models.wmf.sides import RUNS, Loss, RowSystems, Solver, empty_table, rows, table_of
from models.wmf.sums import numbers, sum_equations, sum_products


@dataclass(frozen=True)
class Terms:
    """What of a model every block must know."""

    factors: int
    loss: Loss
    solver: Solver
    threads: int


class Solved(NamedTuple):
    """What a block's users give after their half of a pass.

    Attributes:
        gram: float32 (K, K), w0 G of these users.
        penalty: of their factors, in the loss.
        sums: for the items (`models.wmf.sums`): at their old factors, or of their normal equations.
        value: sum over the edges of a_e (u_e'x)^2 - 2 y_e u_e'x at the items' old factors; 0 with normal equations.
    """

    gram: np.ndarray
    penalty: float
    sums: np.ndarray
    value: float


def weigh(block: Block, state: int, items: int) -> tuple[np.ndarray, float]:
    """The sum of the weights of each item's users, float64 (items,), and the constant of the loss."""
    matrix, weights = block.matrix(items), block.read(state)["weights"]
    of_edges = np.repeat(weights, np.diff(matrix.indptr))
    constant = block.terms.loss.constant(matrix, weights, None)
    return np.bincount(matrix.indices, weights=of_edges, minlength=items), constant


def solve_users(block: Block, state: int, items: np.ndarray, gram: np.ndarray) -> Solved:
    """Solve the users, who are written under `state` + 1.

    Args:
        items: float32 (items, K); gram: float32, w0 G of the items in the layout of the kernels.
    """
    terms, users = block.terms, block.read(state)
    weights = users["weights"]
    matrix, of_users, of_items = block.matrix(len(items)), table_of(users["factors"]), table_of(items)
    with kernel_threads(terms.threads):
        side = RowSystems(matrix, terms.loss, weights, None)
        side.solve(of_users, of_items, terms.factors, terms.solver, gram)
        block.write(state + 1, {"factors": rows(of_users, terms.factors), "weights": weights})
        other = RowSystems(matrix.T.tocsr(), terms.loss, None, weights)
        width = int(padded(terms.factors))
        users_gram = other.gram(of_users, terms.factors).reshape(width, width)[: terms.factors, : terms.factors]
        if terms.solver.steps > 0:
            sums, value = _products(other, of_users, of_items, terms.factors, pulled=True)
        else:
            sums, value = np.empty((len(items), numbers(terms.factors)), dtype=np.float32), 0.0
            sum_equations(of_users, other.graph, width, terms.factors, _runs(other.graph[0]), sums)
    return Solved(users_gram.copy(), side.penalty(of_users, terms.factors), sums, value)


def multiply(block: Block, state: int, directions: np.ndarray) -> np.ndarray:
    """The block's part of -A d without Gram matrix and ridge, float32 (items, K), for directions of that shape."""
    users, terms = block.read(state), block.terms
    with kernel_threads(terms.threads):
        side = RowSystems(block.matrix(len(directions)).T.tocsr(), terms.loss, None, users["weights"])
        of_users, of_items = table_of(users["factors"]), table_of(directions)
        return _products(side, of_users, of_items, terms.factors, pulled=False)[0]


def _products(
    side: RowSystems, of_users: np.ndarray, of_items: np.ndarray, factors: int, *, pulled: bool
) -> tuple[np.ndarray, float]:
    """`sum_products` of all items, and the sum of its values."""
    width, items = int(padded(factors)), len(side.penalties)
    out, values = empty_table(items, factors), np.zeros(items)
    sum_products(of_users, side.graph, width, of_items, _runs(side.graph[0]), pulled, out, values)
    return rows(out, factors).copy(), float(values.sum())


def _runs(indptr: np.ndarray) -> np.ndarray:
    return np.unique(runs(indptr, RUNS, 8))
