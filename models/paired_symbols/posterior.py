"""The posterior of paired symbols: that of either kind, users or items, its block updates, and its bound."""

from functools import cached_property
from typing import Self

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix
from scipy.special import digamma, gammaln, log_expit, xlogy

from oneclass.models.numerics.adjacency import as_read_only, partition_shards
from oneclass.models.numerics.logistic_bound import GaussianFactors
from oneclass.models.numerics.threads import single_threaded_blas
from oneclass.models.numerics.validation import row_sums
from oneclass.models.paired_symbols import kernels


class Symbols:
    """The users, or the items, as the symbols that make pairs: their edges, and their part of the posterior.

    Attributes:
        q: the Gaussian factors and biases, updated in place.
        edges: the edges of each vertex, read-only.
        degrees: float64 (vertices,), c_i (or c_j), the number of events of each vertex.
        shares: float64 (vertices,), s (or t).
        concentration: float64 (vertices,), the parameters of the Dirichlet posterior of pi (or psi).
    """

    def __init__(self, graph: csr_matrix | csc_matrix, q: GaussianFactors, precisions: tuple[float, float]) -> None:
        """Args:
        graph: c_ij, as CSR for the users and as CSC for the items.
        precisions: tau_u (or tau_v), and tau_b.
        """
        self.q, self.precisions = q, precisions
        indptr, counts = as_read_only(graph.indptr, np.int64), as_read_only(graph.data, np.float32)
        indices = as_read_only(graph.indices, np.int32)
        self.edges = kernels.Edges(indptr, indices, counts, partition_shards(indptr))
        self.degrees = row_sums(indptr, counts)

    def __len__(self) -> int:
        return len(self.q.mean)

    def set_shares(self, shares: np.ndarray) -> None:
        """Set s (or t), which sum to one."""
        self.shares = shares
        self.__dict__.pop("background", None)

    def update(
        self, other: "Symbols", pseudo: np.ndarray, xi_star: float, passes: int = 1, tolerance: float = 0.0
    ) -> None:
        """Update the block (u_i, b_i) of each vertex up to `passes` times, until means move by at most `tolerance`.

        Args:
            pseudo: D' s_i.
        """
        shares = other.shares.astype(np.float32)
        background = other.background.astype(np.float32)
        censored = kernels.Censored(pseudo, lambda_of_xi(xi_star), shares, background)
        kernels.update_factors(self.q.arrays, other.table, self.edges, censored, self.precisions, (passes, tolerance))
        for cached in ("table", "background"):
            self.__dict__.pop(cached, None)

    @cached_property
    def table(self) -> np.ndarray:
        """The packed rows that the update of the other side reads."""
        return self.q.table()

    @cached_property
    def background(self) -> np.ndarray:
        """The background cache, float64 (K + 2, K + 2): sum_j t_j E[y y'], y = (v, 1, b)."""
        ones, shares = np.ones(len(self)), self.shares
        y = np.column_stack([self.q.mean, ones, self.q.bias_mean]).astype(np.float64)
        variances = np.column_stack([1 / self.q.precision, 0 * ones, 1 / self.q.bias_precision])
        with single_threaded_blas():
            return (y * shares[:, None]).T @ y + np.diag(shares @ variances)

    def averages(self, other: "Symbols") -> tuple[np.ndarray, np.ndarray]:
        """Return E_t[a] and E_t[a^2] of each vertex, float64 (vertices,)."""
        q, background, constant = self.q, other.background, self.q.mean.shape[1]
        x = np.column_stack([q.mean, q.bias_mean, np.ones(len(self))]).astype(np.float64)
        variances = np.column_stack([1 / q.precision, 1 / q.bias_precision])
        with single_threaded_blas():
            squares = ((x @ background) * x).sum(axis=1) + variances @ background.diagonal()[: constant + 1]
            return x @ background[constant], squares

    def edge_sums(self, other: "Symbols") -> np.ndarray:
        """Sums over each vertex's edges, float64 (vertices, 4); see `kernels.sum_edges`."""
        return kernels.sum_edges(self.q.arrays, other.table, self.edges, other.shares.astype(np.float32))

    def update_concentration(self, alpha: float, censored: float) -> None:
        """q(pi) = Dirichlet(alpha + c_i + D' s_i), and q(psi) likewise; `censored` is D'."""
        self.concentration = alpha + self.degrees + censored * self.shares

    def log_shares(self, other: "Symbols", sums: np.ndarray, xi_star: float) -> np.ndarray:
        """log s (or t) but for a constant: E log pi_i + f_i, where f_i is the term of a censored pair of i in the
        bound.

        Args:
            sums: `sum_edges(other)`.
        """
        (mean, square), (_, heights, mass, squares) = self.averages(other), sums.T
        gains = bound_constant(xi_star) * (other.background[-2, -2] - mass) + heights - 0.5 * mean
        gains -= lambda_of_xi(xi_star) * (square - squares)
        return self.expected_log() + gains

    def expected_log(self) -> np.ndarray:
        """E log pi_i (E log psi_j)."""
        return digamma(self.concentration) - digamma(self.concentration.sum())

    def selection_bound(self, alpha: float, censored: float) -> float:
        """E log p(y, pi) - E log q(y, pi), the bound's terms in pi and s (psi and t)."""
        posterior, events = self.concentration, self.degrees + censored * self.shares
        logs = xlogy(self.shares, self.shares).sum()  # of q of a censored pair, which is s_i t_j
        entropy = ((events + alpha - posterior) * self.expected_log()).sum() - censored * logs
        prior = gammaln(len(self) * alpha) - len(self) * gammaln(alpha)
        return float(entropy + prior - gammaln(posterior.sum()) + gammaln(posterior).sum())


def lambda_of_xi(xi: float) -> float:
    """lambda(xi) of `models.numerics.logistic_bound` in float64, for one xi > 0."""
    return float(np.tanh(xi / 2) / (4 * xi))


def bound_constant(xi: float) -> float:
    """log sigma(xi) - xi / 2 + lambda(xi) xi^2: the constant term of the bound for a pair."""
    return log_expit(xi) - xi / 2 + lambda_of_xi(xi) * xi**2


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
            side.update_concentration(alpha, posterior.censored)
        return posterior

    def iterate(self, *, learn_selection: bool) -> float:
        """One pass: every block update once; returns the bound."""
        for own, other in ((self.users, self.items), (self.items, self.users)):
            self.update_factors(own, other)
            if learn_selection:
                self.update_shares(own, other)
                own.update_concentration(self.alpha, self.censored)
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
            total += side.selection_bound(self.alpha, self.censored)
            total += side.q.prior_bound(side.precisions, tuple(np.log(side.precisions)))
        return float(total)

    def _weigh(self, values: np.ndarray) -> float:
        """Sum numbers of the users by their shares; BLAS would do so on several threads, and wait for them."""
        return float((self.users.shares * values).sum())

    def _all_pairs(self) -> tuple[float, float, float]:
        """Sums over all pairs of s_i t_j, s_i t_j E a_ij and s_i t_j E a_ij^2, from the background caches."""
        users, items = self.users.background, self.items.background
        swapped = np.r_[: len(users) - 2, len(users) - 1, len(users) - 2]  # a bias meets the other side's constant
        users = users[np.ix_(swapped, swapped)]
        return users[-1, -1] * items[-2, -2], float(users[-1] @ items[-2]), float((users * items).sum())
