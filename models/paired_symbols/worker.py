"""One block of users of paired symbols, wherever it is computed (`models.user_blocks`).

The users' rows lie with the block. Their update needs the items alone, and is that of one machine to the bit.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from models.numerics.logistic_bound import lambda_of_xi
from models.numerics.threads import kernel_threads
from models.paired_symbols import kernels
from models.paired_symbols.messages import numbers, sum_parameters
from models.paired_symbols.settings import PairedSymbolsSettings
from models.paired_symbols.symbols import Selection, Symbols
from models.user_blocks import Block


@dataclass(frozen=True)
class Terms:
    """What of a model every block must know."""

    settings: PairedSymbolsSettings
    threads: int


class Items(NamedTuple):
    """What the items tell the blocks; to the users they are the other side.

    Attributes:
        rows: float32 (items, 2 W).
        background: float64 (n, n), their background cache.
        xi_star: the bound's parameter for pairs without an edge.
        censored: D'.
    """

    rows: np.ndarray
    background: np.ndarray
    xi_star: float
    censored: float


class OfUsers(NamedTuple):
    """Sums over a block's users.

    Attributes:
        background: float64 (n, n), sum_i s_i E[y y'].
        log_prior_ratio: E[log p - log q] of their factors and biases.
        selection: of their pi and s.
    """

    background: np.ndarray
    log_prior_ratio: float
    selection: Selection


def weigh(block: Block, state: int, items: int) -> np.ndarray:
    """The block's events of each item, float64 (items,)."""
    matrix = block.matrix(items)
    return np.bincount(matrix.indices, weights=matrix.data, minlength=items)


def begin(block: Block, state: int, items: Items, events: float) -> tuple[np.ndarray, OfUsers]:
    """Set s to the shares of events, of which all blocks have `events`; the users are written under `state` + 1.

    Returns:
        `edge_sums`, and the users' sums.
    """
    with kernel_threads(block.terms.threads):
        users = _users(block, state, items)
        users.set_shares(users.degrees / events)
        block.write(state + 1, {"rows": users.rows})
        return _edge_sums(users, items), _sums(block, users, items)


def update(block: Block, state: int, items: Items) -> tuple[np.ndarray, OfUsers]:
    """q(u_i, b_i) of the users, who are written under `state` + 1.

    Returns:
        The message for the items (`models.paired_symbols.messages`), and the users' sums.
    """
    with kernel_threads(block.terms.threads):
        users = _users(block, state, items)
        users.update(items, items.censored * users.shares, items.xi_star)
        block.write(state + 1, {"rows": users.rows})
        return _message(block, users, items), _sums(block, users, items)


def propose(block: Block, state: int, items: Items, weight: float) -> tuple[float, float]:
    """q(u_i, b_i) of the users, and log s but for a constant; both are written under `state` + 1.

    Args:
        weight: the sum of the parameters of the Dirichlet posterior over all users.

    Returns:
        The largest log s, and the sum of all s over the one with that.
    """
    settings = block.terms.settings
    with kernel_threads(block.terms.threads):
        users = _users(block, state, items)
        users.update_concentration(settings.alpha, items.censored)
        users.weight = weight
        users.update(items, items.censored * users.shares, items.xi_star)
        logs = users.log_shares(items, users.edge_sums(items), items.xi_star)
        block.write(state + 1, {"rows": users.rows, "logs": logs})
    return float(logs.max()), float(np.exp(logs - logs.max()).sum())


def settle(block: Block, state: int, items: Items, top: float, total: float) -> tuple[np.ndarray, OfUsers]:
    """Set s to exp(log s - top) / total; returns what `update` does."""
    with kernel_threads(block.terms.threads):
        users = _users(block, state, items)
        users.set_shares(np.exp(block.read(state)["logs"] - top) / total)
        block.write(state + 1, {"rows": users.rows})
        return _message(block, users, items), _sums(block, users, items)


def edge_sums_of_items(block: Block, state: int, items: Items) -> np.ndarray:
    """The block's part of sums over each item's edges, float64 (items, 4); see `kernels.edge_sums`."""
    with kernel_threads(block.terms.threads):
        return _by_item(block, items).edge_sums(_users(block, state, items))


def edge_sums(block: Block, state: int, items: Items) -> np.ndarray:
    """The sums of `kernels.edge_sums` over the block's users, all but the first weighted by s, float64 (4,)."""
    with kernel_threads(block.terms.threads):
        return _edge_sums(_users(block, state, items), items)


def _edge_sums(users: Symbols, items: Items) -> np.ndarray:
    seen, *others = users.edge_sums(items).T
    return np.array([seen.sum(), *(users.shares @ one for one in others)])


def _sums(block: Block, users: Symbols, items: Items) -> OfUsers:
    alpha = block.terms.settings.alpha
    users.update_concentration(alpha, items.censored)
    return OfUsers(users.background, users.log_prior_ratio(), users.selection(alpha, items.censored))


def _message(block: Block, users: Symbols, items: Items) -> np.ndarray:
    side = _by_item(block, items)
    pairs = kernels.Censored(items.censored * side.shares, lambda_of_xi(items.xi_star), np.zeros(0))
    message = np.empty((len(side), numbers(block.terms.settings.factors)), dtype=np.float32)
    sum_parameters(side.lanes, side.edges, side.rows, users.rows, pairs, message)
    return message


def _users(block: Block, state: int, items: Items) -> Symbols:
    rows = block.read(state)["rows"]
    return _symbols(block, _graph(block, items), rows, block.terms.settings.tau_u)


def _by_item(block: Block, items: Items) -> Symbols:
    """The items with the edges that the block has."""
    return _symbols(block, _graph(block, items).tocsc(), items.rows, block.terms.settings.tau_v)


def _symbols(block: Block, graph: csr_matrix, rows: np.ndarray, precision: float) -> Symbols:
    side = Symbols(graph, rows, block.terms.settings.factors, (precision, block.terms.settings.tau_b))
    side.take_shares()
    return side


def _graph(block: Block, items: Items) -> csr_matrix:
    matrix = block.matrix(len(items.rows))
    parts = (matrix.data.astype(np.float32, copy=False), matrix.indices, matrix.indptr)
    return csr_matrix(parts, shape=matrix.shape)
