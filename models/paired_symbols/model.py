"""Paired symbols: popularity and preference kept apart, a Bayesian stand-in for a bilinear softmax.

Paquet, Koenigstein and Winther (2014), "A scalable Bayesian alternative to density estimation with a bilinear
softmax function". D pairs (user i, item j) were seen, and D' = r D pairs were censored. A pair was selected with
probability pi_i psi_j, and then seen with probability sigma(a_ij), a_ij = u_i.v_j + b_i + b_j, or else censored. The
fit maximises the variational bound of eq. 4. With the logistic functions bounded by means of xi, its expected
log-likelihood is

    sum_ij c_ij {h(xi_ij) + E a_ij / 2 - lambda(xi_ij) E a_ij^2}
        + D' sum_ij s_i t_j {h(xi_ij) - E a_ij / 2 - lambda(xi_ij) E a_ij^2},
    h(xi) = log sigma(xi) - xi / 2 + lambda(xi) xi^2,

where s and t are the shares of each user and item in the censored pairs. Pairs without an edge share xi_ij = xi*, so
that every update is a sum over edges plus a background cache. The short paper leaves out the updates of the biases, s,
t, xi* and the Dirichlet posteriors; they are in `models.paired_symbols.posterior`. The precisions tau are 1 by default,
as in the paper, and are not learned: maximising the bound over them shrinks the preferences to nothing. The weights of
eq. 10 have a misprint: u_i should be u_i', over which the sum in their denominator runs.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import Field
from scipy.sparse import csc_matrix, csr_matrix

from oneclass.models.base import Model
from oneclass.models.fit_options import DEFAULT_OPTIONS, Epoch, FitOptions, copy_rows, has_converged
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.negatives.distributions import CensoredPairs
from oneclass.models.negatives.like_probability import LikeScorer
from oneclass.models.numerics.logistic_bound import GaussianFactors
from oneclass.models.numerics.random_numbers import normals, purpose
from oneclass.models.paired_symbols.posterior import PairedSymbolsPosterior, Symbols
from oneclass.models.settings import ModelSettings, NumericRange, SearchSpace

START = purpose("paired_symbols start")
START_SCALE, START_VARIANCE = 0.1, 0.1
TOLERANCE = 1e-5  # a fit ends where a pass has moved the bound by less than this share
ALPHA = 1.0  # Dirichlet prior of the selection probabilities pi and psi
TAU_B = 1.0  # prior precision of all biases
MAX_FOLD_IN_PASSES, FOLD_IN_TOLERANCE = 100, 1e-4


class PairedSymbolsSettings(ModelSettings):
    """Settings of `PairedSymbols`; the paper's where it states one."""

    search_space: ClassVar[SearchSpace] = {
        "factors": NumericRange(10, 100, log=True, manual_only=True),
        "r": NumericRange(0.5, 16.0, log=True, manual_only=True),
        "iterations": NumericRange(10, 40, manual_only=True),
        "tau_u": NumericRange(0.3, 10.0, log=True),
        "tau_v": NumericRange(0.3, 10.0, log=True),
        "popularity_weight": NumericRange(0.0, 1.0),
    }
    initial_trials: ClassVar = ({"factors": 64, "r": 4.0, "like_r": 1.0, "tau_u": 0.6, "tau_v": 0.8},)

    factors: int = Field(20, ge=1, le=512, description="K, the length of u_i and v_j.")
    r: float = Field(1.0, gt=0, allow_inf_nan=False, description="Censored pairs for each pair seen, D' = r D.")
    like_r: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Censored pairs for each pair seen that `like` is stated against, whatever number the fit has: by "
        "Bayes' rule log(r / like_r) is added to a_ij. By default r, as in the paper.",
    )
    iterations: int = Field(20, ge=1, description="Largest number of passes over all block updates.")
    learn_selection: bool = Field(
        False,
        description="Update s and t too; otherwise they stay at the shares of events, c_i/D and c_j/D. Learning "
        "them raises the bound, but `like` ranks worse with every pass.",
    )
    tau_u: float = Field(1.0, gt=0, allow_inf_nan=False, description="Prior precision of the users' factors.")
    tau_v: float = Field(1.0, gt=0, allow_inf_nan=False, description="Prior precision of the items' factors.")
    popularity_weight: float = Field(
        0.5, ge=0, allow_inf_nan=False, description="a in `popularity_x_odds`, x + a log E[psi]."
    )


class PairedSymbols(Model[PairedSymbolsSettings]):
    """Bilinear model of seen and censored pairs, an alternative to the softmax, by variational Bayes.

    Paquet, Koenigstein and Winther (2014), the bound of eq. 4 with exact block updates; only the start is random.

    `like` is the probability that a selected pair is seen, and `popularity_x_like` eq. 11. Censored pairs are drawn by
    popularity, so that e^x estimates a ratio of densities: popularity should multiply these odds (`popularity_x_odds`).

    Attributes:
        users, items: q of (u_i, b_i) and of (v_j, b_j).
        user_shares, item_shares: float64 (users,) and (items,), s_i and t_j.
        item_popularity: float64 (items,), E[psi_j].
        xi_star: float64 (1,), the bound's parameter for pairs without an edge.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import PairedSymbols
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = PairedSymbols(factors=4).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "paired_symbols"
    Settings = PairedSymbolsSettings
    score_names = LikeScorer.score_names
    is_iterative = True

    @classmethod
    def estimate_cost(cls, settings: PairedSymbolsSettings, log: LogSize) -> FitCost:
        """Estimate what a fit on a log of this size takes."""
        return FitCost.of_factors(log, settings.factors, 3e-6)

    def _fold_in(self, histories: csr_matrix) -> GaussianFactors:
        """Find q(u_i, b_i) of users who were not in training, with the items fixed.

        The model does not define s_i for such a user. D' s_i = r c_i is used, which a training user with this history
        has if s stays at the shares of events.
        """
        users = self._blank_symbols(histories, self.params.tau_u)
        items, pseudo = self.compute_once("items", self._item_symbols), self.params.r * users.degrees
        users.update(items, pseudo, float(self.xi_star[0]), MAX_FOLD_IN_PASSES, FOLD_IN_TOLERANCE)
        return users.q

    def item_vectors(self) -> np.ndarray:
        """Return the means of the items' factors."""
        return self.items.mean

    def negative_distribution(self) -> CensoredPairs:
        """Return the distribution of the D' = r D censored pairs of section 2; `like_r` replaces r if it is set."""
        return CensoredPairs(self.user_shares, self.item_shares, self.params.like_r or self.params.r)

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        settings = self.params
        posterior, before = self._initial_posterior(interactions, options), np.inf
        for number in range(1, settings.iterations + 1):
            started = time.perf_counter()
            bound = posterior.iterate(learn_selection=settings.learn_selection)
            values = {"bound": bound, "xi_star": posterior.xi_star}
            options.on_epoch(Epoch(number, settings.iterations, time.perf_counter() - started, values))
            if has_converged(before, bound, TOLERANCE):
                break
            before = bound
        self.users, self.items = posterior.users.q, posterior.items.q
        self.user_shares, self.item_shares = posterior.users.shares, posterior.items.shares
        self.item_popularity = posterior.items.concentration / posterior.items.concentration.sum()
        self.xi_star = np.array([posterior.xi_star])

    def _initial_posterior(
        self, interactions: csr_matrix, options: FitOptions = DEFAULT_OPTIONS
    ) -> PairedSymbolsPosterior:
        """Return the initial q: of the earlier fit, or with items at small random means (zero is a fixed point)."""
        graph, settings, start = csr_matrix(interactions, dtype=np.float32), self.params, options.start
        users = self._blank_symbols(graph, settings.tau_u)
        items = self._blank_symbols(graph.tocsc(), settings.tau_v)
        items.q.mean[:] = START_SCALE * normals(self.seed, START, *items.q.mean.shape)
        if start:
            for side, earlier, rows in (
                (users, start.previous.users, start.users),
                (items, start.previous.items, start.items),
            ):
                for own, old in zip(side.q.arrays, earlier.arrays, strict=True):
                    copy_rows(own, old, rows)
        posterior = PairedSymbolsPosterior.initial(users, items, settings.r, ALPHA)
        posterior.update_xi()
        return posterior

    def _user_side(self, histories: csr_matrix, users: np.ndarray | None) -> GaussianFactors:
        return self.fold_in(histories) if users is None else self.users.rows(users)

    def _scorer(self) -> LikeScorer:
        return self.compute_once("scorer", self._make_scorer)

    def _make_scorer(self) -> LikeScorer:
        """Return the scorer; log(r / like_r) turns odds against r censored pairs per seen pair into the wanted."""
        settings = self.params
        shift = np.float32(np.log(settings.r / (settings.like_r or settings.r)))
        q = replace(self.items, bias_mean=self.items.bias_mean + shift)
        return LikeScorer(q, self.item_popularity, settings.popularity_weight)

    def _like(
        self, histories: csr_matrix, *, users: np.ndarray | None = None, items: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        return self._scorer().like(self._user_side(histories, users), items)

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        return next(self._scorer().compute_scores(self._user_side(histories, users), (score,)))

    def _iterate_scores(self, histories: csr_matrix, users: np.ndarray | None) -> Iterator[np.ndarray]:
        return self._scorer().compute_scores(self._user_side(histories, users), self.score_names)

    def _item_symbols(self) -> Symbols:
        """Return the items as the fixed side of a fold-in."""
        symbols = Symbols(csr_matrix((len(self.items.mean), 0)), self.items, (self.params.tau_v, TAU_B))
        symbols.set_shares(self.item_shares)
        return symbols

    def _blank_symbols(self, graph: csr_matrix | csc_matrix, precision: float) -> Symbols:
        vertices = len(graph.indptr) - 1
        q = GaussianFactors.prior(vertices, self.params.factors, clamped=False)
        q.precision[:], q.bias_precision[:] = 1 / START_VARIANCE, 1 / START_VARIANCE
        return Symbols(graph, q, (precision, TAU_B))

    def _arrays(self) -> dict[str, np.ndarray]:
        return super()._arrays() | self.users.to_arrays("user") | self.items.to_arrays("item")

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.users = GaussianFactors.from_arrays(arrays, "user")
        self.items = GaussianFactors.from_arrays(arrays, "item").rows(slice(None))  # kernels take writable arrays
        for name in ("user_shares", "item_shares", "item_popularity", "xi_star"):
            setattr(self, name, arrays[name])
