"""Hierarchical Poisson factorization by coordinate ascent (Gopalan, Hofman and Blei 2015; Ruggieri's notes).

    xi_u ~ Gamma(a', a'/b')    theta_uk ~ Gamma(a, xi_u)      activity and preferences of user u
    eta_i ~ Gamma(c', c'/d')   beta_ik ~ Gamma(c, eta_i)      popularity and attributes of item i
    y_ui ~ Poisson(theta_u' beta_i)                           count of edge (u, i), here one; all Gamma(shape, rate)

The posterior is approximated by q = prod Gamma(theta_uk | gamma) Gamma(beta_ik | lambda) Gamma(xi_u | kappa)
Gamma(eta_i | tau) prod Mult(z_ui | y_ui, phi_ui), and each block in turn is set to its exact maximum. `phi` is never
stored: with t_uk = exp E log theta_uk and b_ik = exp E log beta_ik, phi_uik = t_uk b_ik / s_ui where
s_ui = sum_k t_uk b_ik, so that the sums of both sides need only the weight 1 / s_ui of each edge.

Ruggieri's text has four mistakes. Here
  - phi is proportional to exp{Psi(gamma_shp) - log gamma_rte + Psi(lambda_shp) - log lambda_rte} (eq. 1 and
    the algorithm box drop the exponential);
  - the rates of kappa, lambda and tau add means, shape / rate (the box has rate / shape; its code is right);
  - the conditional of beta_ik has the shape c + sum over *users* of z_uik;
  - the fit stops when the relative change of the bound below is small (the appendix looks at the absolute change of a
    log-likelihood that leaves out the power of the counts and all of exp(-theta' beta) but its diagonal).

The start is that of Ruggieri's section 4.1 and of the code in his appendix, except for the rates of gamma and lambda.
Every "draw" below is a separate Uniform(0, 1); the algorithm box speaks of a small random offset:

    gamma_shp, lambda_shp    a + draw, c + draw                as in the notes
    kappa_rte, tau_rte       a'/b' + draw, c'/d' + draw        as in the notes
    gamma_rte, lambda_rte    a'/b' + draw, c'/d' + draw        the notes have a/b' + draw, c/d' + draw, which makes
                                                               E theta = b' without the draw; here it is a b'/a'
    kappa_shp, tau_shp       K a + a', K c + c'                as in the notes; no update changes them

At the defaults a = a' and c = c', and the two starts are the same. The ascent begins by computing phi from the start;
gamma and lambda are overwritten by their first updates.

The bound, with phi at its maximum:

    L = sum_edges log s - sum_k (sum_u E theta_uk) (sum_i E beta_ik) + sum_u R_u + sum_i R_i
    R_u = sum_k {(a - g) Psi(g) + log Gamma(g) + g - a log gamma_rte} - K log Gamma(a)
          + log Gamma(k) + k - k log kappa_rte + a' log(a'/b') - log Gamma(a') - E xi {a'/b' + sum_k E theta},
          g = gamma_shp, k = kappa_shp = K a + a', E xi = k / kappa_rte; R_i alike.
"""

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import ClassVar

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.fit_options import Epoch, FitOptions, Start, has_converged
from oneclass.models.hpf.ascent import (
    SHARDS,
    Ascent,
    GammaFactors,
    GammaParameters,
    Prior,
    draw_initial_posterior,
    fold_in,
)
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.numerics.adjacency import copy_pattern, partition_evenly
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.settings import ModelSettings, NumericRange, SearchSpace

TOLERANCE = 1e-5  # a fit ends where the relative change of the bound falls below this
FOLD_IN_UPDATES = 100  # of an unseen user, at most
FOLD_IN_TOLERANCE = 1e-3  # they end where no preference changes by more than this share of the largest


class HPFSettings(ModelSettings):
    """Priors as in the paper, and when to stop."""

    search_space: ClassVar[SearchSpace] = {
        "factors": NumericRange(10, 100, log=True, manual_only=True),
        "a": NumericRange(0.05, 2.0, log=True),
        "a_prime": NumericRange(0.1, 10.0, log=True),
        "c": NumericRange(0.05, 2.0, log=True),
        "c_prime": NumericRange(0.1, 10.0, log=True),
    }

    factors: int = Field(20, ge=1, description="K, components of theta_u and beta_i.")
    a: float = Field(
        0.3,
        ge=0.05,
        description="Shape of a user's preferences; small values make them sparse. Below 0.05 exp E log theta "
        "would underflow in float32.",
    )
    a_prime: float = Field(0.3, gt=0, description="a', the shape of a user's activity.")
    b_prime: float = Field(1.0, gt=0, description="b'; the rate of the activity is a'/b'.")
    c: float = Field(0.3, ge=0.05, description="Shape of an item's attributes.")
    c_prime: float = Field(0.3, gt=0, description="c', the shape of an item's popularity.")
    d_prime: float = Field(1.0, gt=0, description="d'; the rate of the popularity is c'/d'.")
    starts: int = Field(
        1,
        ge=1,
        description="Random starts, those of the seed and of the next ones; each is followed to its end, and the fit "
        "whose bound is highest is kept.",
    )
    max_iterations: int = Field(500, ge=1, description="Largest number of passes over the edges from a start.")

    @property
    def user_prior(self) -> Prior:
        """a, a' and a'/b'."""
        return Prior(self.a, self.a_prime, self.a_prime / self.b_prime, self.factors)

    @property
    def item_prior(self) -> Prior:
        """c, c' and c'/d'."""
        return Prior(self.c, self.c_prime, self.c_prime / self.d_prime, self.factors)


class HPF(Model[HPFSettings]):
    """Hierarchical Poisson factorization by coordinate ascent; scores are rates, E theta_u' E beta_i.

    Gopalan, Hofman and Blei (2015); updates and bound are in the module's docstring.

    Attributes:
        user_shape, user_rate: float32 (users, K), gamma.
        item_shape, item_rate: float32 (items, K), lambda.
        activity_rate, popularity_rate: float64 (users,) and (items,), the rates of kappa and tau.
        bounds: float64 (iterations,), the bound in each iteration of the best start, after its update of phi.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import HPF
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = HPF(factors=4).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name: ClassVar[str] = "hpf"
    Settings: ClassVar[type[ModelSettings]] = HPFSettings

    is_iterative = True

    @classmethod
    def estimate_cost(cls, settings: HPFSettings, log: LogSize) -> FitCost:
        """Estimate what a fit on a log of this size takes."""
        return FitCost.of_factors(log, settings.factors, 1.5e-5)

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        best: tuple[np.ndarray, GammaFactors, GammaFactors] | None = None
        starts = 1 if options.start else self.params.starts
        for number in range(starts):
            users, items = self._initial_posterior(interactions.shape, options.start, number)
            ascent = Ascent(interactions, users, items)
            bounds = np.array(list(self._run_ascent(ascent, (number, starts), options.on_epoch)))
            if best is None or bounds[-1] > best[0][-1]:
                best = bounds, users, items
        assert best is not None
        self.bounds, users, self._items = best
        self.user_shape, self.user_rate, self.activity_rate = users.posterior
        self.item_shape, self.item_rate, self.popularity_rate = self._items.posterior

    def _initial_posterior(
        self, shape: tuple[int, int], before: Start | None, number: int = 0
    ) -> tuple[GammaFactors, GammaFactors]:
        """Draw the initial users and items of a start, or take those of an earlier fit."""
        settings, sides = self.params, ("users", "items")
        users, items = (
            GammaFactors(prior, draw_initial_posterior(prior, rows, self.seed + number, side))
            for prior, rows, side in zip((settings.user_prior, settings.item_prior), shape, sides, strict=True)
        )
        if before:
            users.take(before.previous.user_posterior, before.users)
            items.take(before.previous.item_posterior, before.items)
        return users, items

    def _run_ascent(self, ascent: Ascent, start: tuple[int, int], on_epoch: Callable[[Epoch], None]) -> Iterator[float]:
        """Iterate until convergence; yields the bound in every iteration.

        Args:
            start: the number of the random start, from 0, and the number of starts.
        """
        last, limit, (number, starts) = -np.inf, self.params.max_iterations, start
        for iteration in range(1, limit + 1):
            started = perf_counter()
            bound = ascent.iterate()
            spent = perf_counter() - started
            on_epoch(Epoch(number * limit + iteration, starts * limit, spent, {"bound": bound}))
            yield bound
            if has_converged(last, bound, TOLERANCE):
                break
            last = bound

    @property
    def user_posterior(self) -> GammaParameters:
        """gamma_shp, gamma_rte and kappa_rte."""
        return GammaParameters(self.user_shape, self.user_rate, self.activity_rate)

    @property
    def item_posterior(self) -> GammaParameters:
        """lambda_shp, lambda_rte and tau_rte."""
        return GammaParameters(self.item_shape, self.item_rate, self.popularity_rate)

    def _fold_in(self, histories: csr_matrix) -> np.ndarray:
        """Find E theta, float32 (users, K), by coordinate ascent on gamma and kappa with fixed items."""
        settings = self.params
        means = np.empty((histories.shape[0], settings.factors), dtype=np.float32)
        fold_in(
            copy_pattern(histories),
            self._items.factors,
            self._items.total,
            settings.user_prior.of_rows,
            (FOLD_IN_UPDATES, FOLD_IN_TOLERANCE),
            partition_evenly(len(means), SHARDS),
            means,
        )
        return means

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        means = self.fold_in(histories) if users is None else self.user_shape[users] / self.user_rate[users]
        return dense_times(means, self.compute_once("columns", lambda: np.ascontiguousarray(self.item_vectors().T)))

    def item_vectors(self) -> np.ndarray:
        """Return the means of the items' factors."""
        return np.asarray(self.item_shape / self.item_rate, dtype=np.float32)

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        super()._restore(arrays)
        self._items = GammaFactors(self.params.item_prior, GammaParameters(*map(np.array, self.item_posterior)))
