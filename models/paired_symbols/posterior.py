"""The posterior of paired symbols: that of either kind, users or items, its block updates, and its bound."""

from typing import Self

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix
from scipy.special import digamma, gammaln, log_expit, xlogy

from oneclass.models.numerics.adjacency import as_read_only, partition_rows
from oneclass.models.numerics.logistic_bound import lambda_of_xi
from oneclass.models.numerics.simd import aligned_zeros, pad_width
from oneclass.models.numerics.validation import row_sums
from oneclass.models.paired_symbols import kernels
from oneclass.models.paired_symbols.kernels import COLUMN_UNIT


def blank_rows(vertices: int, factors: int, variance: float) -> np.ndarray:
    """Rows of zero means in the layout of `models.paired_symbols.kernels`, aligned to cache lines of 64 bytes."""
    n = factors + 2
    width = pad_width(n, COLUMN_UNIT)
    rows = aligned_zeros(vertices * 2 * width).reshape(vertices, 2 * width)
    rows[:, n - 1] = 1
    rows[:, width : width + n - 1] = variance
    return rows


class Symbols:
    """The users, or the items, as the symbols that make pairs: their edges, and their part of the posterior.

    Attributes:
        rows: float32 (vertices, 2 W), Gaussian factors and shares, laid out as `models.paired_symbols.kernels` says.
        edges: the edges of each vertex, read-only.
        degrees: float64 (vertices,), c_i (or c_j), the number of events of each vertex.
        shares: float64 (vertices,), s (or t), as `rows` have them in float32.
        concentration: float64 (vertices,), the parameters of the Dirichlet posterior of pi (or psi).
        weight: the sum of the concentrations, of all symbols of the kind.
    """

    def __init__(
        self,
        graph: csr_matrix | csc_matrix,
        rows: np.ndarray,
        factors: int,
        precisions: tuple[float, float],
    ) -> None:
        """Args:
        graph: c_ij, as CSR for the users and as CSC for the items.
        precisions: tau_u (or tau_v), and tau_b.
        """
        self.rows, self.precisions = rows, precisions
        self.lanes = (0,) * (factors + 2)
        indptr, counts = as_read_only(graph.indptr, np.int64), as_read_only(graph.data, np.float32)
        # The cuts of a single user, who is folded in, would take as long as the update.
        bounds = (
            np.arange(2) if len(indptr) == 2 else partition_rows(indptr, kernels.SHARDS, kernels.SOLVE_COST_IN_EDGES)
        )
        self.edges = kernels.Edges(indptr, as_read_only(graph.indices, np.int32), counts, bounds)
        self.degrees = row_sums(indptr, counts)
        self._sums: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def set_shares(self, shares: np.ndarray) -> None:
        """Set s (or t); they sum to one."""
        lane = self.rows.shape[1] // 2 + len(self.lanes) - 1
        self.rows[:, lane] = shares
        self.shares = self.rows[:, lane].astype(np.float64)
        self._sums = None

    def update(
        self, other: "Symbols", pseudo: np.ndarray, xi_star: float, passes: int = 1, tolerance: float = 0.0
    ) -> None:
        """Update the block (u_i, b_i) of each vertex up to `passes` times, until means move by at most `tolerance`.

        Args:
            pseudo: D' s_i.
        """
        censored = kernels.Censored(pseudo, lambda_of_xi(xi_star), other.padded_background)
        limits = passes, tolerance
        kernels.update_rows(self.lanes, self.edges, self.rows, other.rows, censored, self.precisions, limits)
        self._sums = None

    @property
    def background(self) -> np.ndarray:
        """The background cache, float64 (n, n): sum_j t_j E[y y'], y = (v, b, 1)."""
        return self._cached_sums()[0][:, : len(self.lanes)]

    @property
    def padded_background(self) -> np.ndarray:
        """The background cache with its rows padded to W, float64 (n W,)."""
        return self._cached_sums()[0].reshape(-1)

    def averages(self, other: "Symbols") -> np.ndarray:
        """Return E_t[a] and E_t[a^2] of each vertex, float64 (vertices, 2)."""
        moments = np.empty((len(self.rows), 2))
        kernels.average_background(self.lanes, self.rows, other.padded_background, moments)
        return moments

    def edge_sums(self, other: "Symbols") -> np.ndarray:
        """Sums over each vertex's edges, float64 (vertices, 4); see `kernels.edge_sums`."""
        out = np.empty((len(self.rows), 4))
        kernels.sum_edges(self.lanes, self.edges, self.rows, other.rows, out)
        return out

    def update_concentration(self, alpha: float, censored: float) -> None:
        """q(pi) = Dirichlet(alpha + c_i + D' s_i), and q(psi) likewise; `censored` is D'."""
        self.concentration = alpha + self.degrees + censored * self.shares
        self.weight = self.concentration.sum()

    def log_shares(self, other: "Symbols", sums: np.ndarray, xi_star: float) -> np.ndarray:
        """log s (or t) but for a constant: E log pi_i + f_i, where f_i is the term of a censored pair of i in the
        bound.

        Args:
            sums: `sum_edges(other)`.
        """
        moments = self.averages(other)
        _, heights, mass, squares = sums.T
        gains = bound_constant(xi_star) * (other.background[-1, -1] - mass) + heights - 0.5 * moments[:, 0]
        gains -= lambda_of_xi(xi_star) * (moments[:, 1] - squares)
        return self.expected_log() + gains

    def log_prior_ratio(self) -> float:
        """E[log p - log q] of all Gaussian factors and biases."""
        log_variance, square, log_bias_variance, bias_square = self._cached_sums()[1]
        total, vertices = 0.0, len(self.rows)
        for tau, log, moment, size in (
            (self.precisions[0], log_variance, square, len(self.lanes) - 2),
            (self.precisions[1], log_bias_variance, bias_square, 1),
        ):
            total += 0.5 * (log - tau * moment + vertices * size * (1 + np.log(tau)))
        return total

    def expected_log(self) -> np.ndarray:
        """E log pi_i (E log psi_j)."""
        return digamma(self.concentration) - digamma(self.weight)

    def selection_bound(self, alpha: float, censored: float) -> float:
        """E log p(y, pi) - E log q(y, pi), the bound's terms in pi and s (psi and t)."""
        posterior, events = self.concentration, self.degrees + censored * self.shares
        logs = xlogy(self.shares, self.shares).sum()  # of q of a censored pair, which is s_i t_j
        entropy = ((events + alpha - posterior) * self.expected_log()).sum() - censored * logs
        prior = gammaln(len(self) * alpha) - len(self) * gammaln(alpha)
        return float(entropy + prior - gammaln(self.weight) + gammaln(posterior).sum())

    def _cached_sums(self) -> tuple[np.ndarray, np.ndarray]:
        if self._sums is None:
            n = len(self.lanes)
            backgrounds, priors = np.zeros((kernels.SHARDS, n, n)), np.zeros((kernels.SHARDS, 4))
            kernels.sum_backgrounds(self.lanes, self.rows, backgrounds, priors)
            upper, padded = backgrounds.sum(axis=0), np.zeros((n, int(pad_width(n, COLUMN_UNIT))))
            padded[:, :n] = upper + np.triu(upper, 1).T
            self._sums = padded, priors.sum(axis=0)
        return self._sums


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
