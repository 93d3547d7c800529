"""The posterior of paired symbols: its block updates in their order, and its bound."""

from typing import Self

import numpy as np

from oneclass.models.numerics.logistic_bound import lambda_of_xi
from oneclass.models.paired_symbols.symbols import Symbols, bound_constant


class PairedSymbolsPosterior:
    """q of the whole model (eq. 5). All censored pairs share s and t, and all pairs without an edge share xi*.

    Attributes:
        users, items: the symbols of either kind.
        censored: D' = r D.
        alpha: concentration of the Dirichlet priors.
        xi_star: the bound's parameter for pairs without an edge.
    """

    def __init__(self, users: Symbols, items: Symbols, censored: float, alpha: float) -> None:
        self.users, self.items, self.censored, self.alpha = users, items, censored, alpha
        self.xi_star = 1.0

    @classmethod
    def initial(cls, users: Symbols, items: Symbols, r: float, alpha: float) -> Self:
        """D' = r D, and s and t at the shares of events."""
        posterior = cls(users, items, r * users.degrees.sum(), alpha)
        for side in (users, items):
            side.set_shares(side.degrees / side.degrees.sum())
        for side in (users, items):
            posterior.update_concentration(side)
        return posterior

    def iterate(self, *, learn_selection: bool) -> float:
        """One pass: every block update once; returns the bound."""
        for own, other in ((self.users, self.items), (self.items, self.users)):
            self.update_factors(own, other)
            if learn_selection:
                self.update_shares(own, other)
                self.update_concentration(own)
        sums = self.users.edge_sums(self.items)
        self.update_xi(sums)
        return self.bound(sums)

    def update_factors(self, own: Symbols, other: Symbols) -> None:
        """q(u_i, b_i) of every user, or q(v_j, b_j) of every item (eq. 6 to 8, biases included)."""
        own.update(other, self.censored * own.shares, self.xi_star)

    def update_shares(self, own: Symbols, other: Symbols) -> None:
        """s (or t), proportional to exp(E log pi_i + f_i); see `Symbols.log_shares`."""
        logs = own.log_shares(other, own.edge_sums(other), self.xi_star)
        shares = np.exp(logs - logs.max())
        own.set_shares(shares / shares.sum())

    def update_concentration(self, own: Symbols) -> None:
        """q(pi), or q(psi)."""
        own.update_concentration(self.alpha, self.censored)

    def update_xi(self, sums: np.ndarray | None = None) -> None:
        """Set xi*^2 to the mean of E a^2 over pairs without an edge, weighted by s_i t_j; if there are none, keep it.

        Args:
            sums: `users.edge_sums(items)` of the present factors and shares; computed here if not given.
        """
        sums = self.users.edge_sums(self.items) if sums is None else sums
        mass, _, square = self._all_pairs()
        left = mass - self._weigh(sums[:, 2])
        if left > 1e-6 * mass:
            self.xi_star = float(np.sqrt(max((square - self._weigh(sums[:, 3])) / left, 1e-12)))

    def bound(self, sums: np.ndarray | None = None) -> float:
        """The variational lower bound of log p(D) (eq. 4), in nats, with every edge's xi_ij at its optimum.

        Args:
            sums: as for `update_xi`.
        """
        sums = self.users.edge_sums(self.items) if sums is None else sums
        seen, heights, mass, squares = sums.T
        all_mass, all_mean, all_square = self._all_pairs()
        bend = lambda_of_xi(self.xi_star)
        background = bound_constant(self.xi_star) * all_mass - 0.5 * all_mean - bend * all_square
        edges = self._weigh(heights - bound_constant(self.xi_star) * mass + bend * squares)
        total = seen.sum() + self.censored * (background + edges)
        for side in (self.users, self.items):
            total += side.selection_bound(self.alpha, self.censored) + side.log_prior_ratio()
        return float(total)

    def _weigh(self, values: np.ndarray) -> float:
        """Sum numbers of the users by their shares; BLAS would do so on several threads, and wait for them."""
        return float((self.users.shares * values).sum())

    def _all_pairs(self) -> tuple[float, float, float]:
        """Sums over all pairs of s_i t_j, s_i t_j E a_ij and s_i t_j E a_ij^2, from the background caches."""
        n = len(self.users.lanes)
        swapped = np.r_[: n - 2, n - 1, n - 2]  # in a_ij, a bias meets the other side's constant
        users, items = self.users.background, self.items.background[np.ix_(swapped, swapped)]
        return users[-1, -1] * items[-2, -2], float(users[:, -1] @ items[:, -2]), float((users * items).sum())
