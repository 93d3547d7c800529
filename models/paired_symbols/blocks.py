"""Paired symbols by blocks of users.

With the items' rows, their background cache and xi*, a block can update its users. An item needs sums over its own users
(`models.paired_symbols.messages`), and the background cache of all users; xi* needs a few sums over all edges, with the
new items. So a pass has two exchanges, or four where s and t are learned. The fit is that of one machine, but for the
rounding of an item's sums: each block sends its part in float32, and these are added in float64, in the order of the blocks.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from scipy.sparse import csr_matrix

from models.fitting import FitOptions
from models.paired_symbols import worker
from models.paired_symbols.messages import move_items
from models.paired_symbols.posterior import PairedSymbolsPosterior
from models.paired_symbols.settings import PairedSymbolsSettings
from models.paired_symbols.symbols import Selection, Symbols
from models.paired_symbols.worker import Items, OfUsers, Terms
from models.user_blocks import Blocks, added, cut_into_blocks


@contextmanager
def begun(
    terms: Terms, users: np.ndarray, items: np.ndarray, interactions: csr_matrix, options: FitOptions
) -> Iterator["BlocksPosterior"]:
    """A fit by blocks at its beginning, the rows of users and items; its folder in `options.scratch` goes when it ends."""
    with cut_into_blocks(interactions, terms.settings.blocks, terms, options, "paired_symbols") as blocks:
        blocks.begin({"rows": users})
        del users  # they lie on disk
        yield BlocksPosterior(blocks, items)


class Users:
    """The users as the items and the bound see them: sums over each block.

    Attributes:
        shares: what the blocks' sums over edges are multiplied by: they have s in them already.
        background: float64 (n, n), sum_i s_i E[y y'].
    """

    def __init__(self, users: int, lanes: tuple, parts: list[OfUsers]) -> None:
        self._users, self.lanes, self.shares = users, lanes, np.ones(len(parts))
        self.background = added(part.background for part in parts)
        self._ratio = sum(part.log_prior_ratio for part in parts)
        self._selection = Selection(*np.sum([part.selection for part in parts], axis=0))

    def __len__(self) -> int:
        return self._users

    def log_prior_ratio(self) -> float:
        """E[log p - log q] of all Gaussian factors and biases."""
        return self._ratio

    def selection(self, alpha: float, censored: float) -> Selection:
        """Sums over all users."""
        return self._selection


class BlocksPosterior(PairedSymbolsPosterior):
    """q while a fit by blocks goes on.

    Attributes:
        users: what is known of them here.
        blocks: where they lie.
    """

    def __init__(self, blocks: Blocks, items: np.ndarray) -> None:
        settings: PairedSymbolsSettings = blocks[0].terms.settings
        self.blocks, nothing = blocks, csr_matrix((len(items), 0))
        side = Symbols(nothing, items, settings.factors, (settings.tau_v, settings.tau_b))
        side.degrees = added(blocks.ask(worker.weigh, len(items)))
        events = float(side.degrees.sum())
        super().__init__(None, side, settings.r * events, settings.alpha)
        side.set_shares(side.degrees / events)
        self.update_concentration(side)
        answers = blocks.ask(worker.begin, self._items(), events, writes=True)
        self._take([of_users for _, of_users in answers])
        self.update_xi(np.stack([sums for sums, _ in answers]))

    def iterate(self, *, learn_selection: bool) -> float:
        """One pass: every block update once; returns the bound."""
        answers = self._propose() if learn_selection else self.blocks.ask(worker.update, self._items(), writes=True)
        self._take([of_users for _, of_users in answers])
        censored = self.items.censored_by(self.users, self.censored * self.items.shares, self.xi_star)
        total = added(message for message, _ in answers)
        move_items(self.items.lanes, self.items.rows, total, censored, self.items.precisions)
        self.items.forget_sums()
        if learn_selection:
            self.update_shares(self.items, self.users)
            self.update_concentration(self.items)
        sums = np.stack(self.blocks.ask(worker.edge_sums, self._items()))
        self.update_xi(sums)
        return self.bound(sums)

    def _propose(self) -> list[tuple[np.ndarray, OfUsers]]:
        """Users and s, whose sum is one over all blocks; the answers of `worker.settle`."""
        items, weight = self._items(), self.users.selection(self.alpha, self.censored).weight
        tops, totals = np.transpose(self.blocks.ask(worker.propose, items, weight, writes=True))
        top = tops.max()
        return self.blocks.ask(worker.settle, items, top, totals @ np.exp(tops - top), writes=True)

    def _edge_sums(self, own: Symbols, other: Symbols) -> np.ndarray:
        return added(self.blocks.ask(worker.edge_sums_of_items, self._items()))

    def _take(self, parts: list[OfUsers]) -> None:
        self.users = Users(self.blocks[-1].end, self.items.lanes, parts)

    def _items(self) -> Items:
        return Items(self.items.rows, self.items.background, self.xi_star, self.censored)
