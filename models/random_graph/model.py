"""One-class collaborative filtering with random graphs (Paquet and Koenigstein 2014).

A like is an edge of the observed graph G. The hidden graph H has an edge for every item that a user considered. For
each edge of H a coin with p(like) = sigma(u_m'v_n + b_m + b_n) decides whether it is also in G. So the model keeps
apart how popular an item is (pi_n: how often it is considered) and how well it is liked once it is considered.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import Epoch, FitOptions, Start, has_converged, sampling_seed, skipped_epochs
from oneclass.models.like_model import LikeModel
from oneclass.models.negatives.sampling import build_alias_table, degree_histogram, histogram_power
from oneclass.models.numerics.adjacency import copy_pattern
from oneclass.models.numerics.logistic_bound import GaussianFactors
from oneclass.models.numerics.random_numbers import normals, purpose
from oneclass.models.random_graph.inference import (
    T_EPSILON,
    GraphSampler,
    PrecisionPosterior,
    RandomGraphPosterior,
    step_sizes,
)
from oneclass.models.random_graph.settings import BOUND_EVERY, T_TAU, RandomGraphSettings

if TYPE_CHECKING:  # a fit needs neither
    from oneclass.models.memory_estimates import FitCost, LogSize
    from oneclass.models.negatives.distributions import WithoutReplacement

START_USERS, START_ITEMS = purpose("random graph: users"), purpose("random graph: items")
SECONDS_PER_EDGE = 7e-6  # CPU seconds of a fit
BURN_IN_ITERATIONS = 10  # the bound may jump after the steps begin to shrink, or the precisions to be learned
INITIAL_SCALE = 0.1  # standard deviation of the first means of the factors
TOLERANCE = 0.003  # a fit ends where the bound has moved by less than this share between two evaluations
IterationStep = Callable[[int, float], dict[str, float]]  # number and step size of an iteration -> reported values


class RandomGraph(LikeModel[RandomGraphSettings]):
    """Factor model of likes on a random graph of considered items, by stochastic variational Bayes.

    Paquet and Koenigstein (2014), Algorithm 1 with eq. 16 to 20; `like` is eq. 22.

    Corrections to the text: eq. 5 has the priors of tau once, not in the products. In eq. 17 P^(t-1) is the diagonal
    precision diag(omega), hence z^(t-1) = diag(omega) eta. Before eq. 13 the bound is maximised, not minimised. r
    (eq. 8) changes which negatives are drawn, never how many.

    Attributes:
        posterior: q(theta), with `users`, `items` and `taus`.
        histogram: float64 (items,), pi by eq. 7, sums to one.
        gamma: the power of pi.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import RandomGraph
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = RandomGraph(factors=4).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "random_graph"
    Settings = RandomGraphSettings
    is_iterative = True

    @classmethod
    def estimate_cost(cls, settings: RandomGraphSettings, log: "LogSize") -> "FitCost":
        """Estimate the cost of a fit."""
        if settings.blocks > 1:
            from oneclass.models.random_graph.blocks import estimate_blocks

            return estimate_blocks(settings, log, SECONDS_PER_EDGE)
        from oneclass.models.memory_estimates import FitCost

        return FitCost.of_factors(log, settings.factors, SECONDS_PER_EDGE)

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        with self._run_iterations(interactions, options) as iterate:
            bounds: list[float] = []
            skipped = min(self._burn_in_end() - 1, skipped_epochs(self.params.iterations, options.start))
            for t, step in enumerate(step_sizes(self.params.iterations), start=1):
                if t <= skipped:  # a warm start begins where the bound may be level
                    continue
                started = time.perf_counter()
                values = {"step_size": step, **iterate(t, step)}
                options.on_epoch(Epoch(t, self.params.iterations, time.perf_counter() - started, values))
                if self._has_converged(t, bounds, values):
                    break

    @contextmanager
    def _run_iterations(self, interactions: csr_matrix, options: FitOptions) -> Generator[IterationStep]:
        """Initialise the posterior, and yield the function of an iteration: of all users at once, or by blocks."""
        power = histogram_power(self.params.r, int(self.item_degrees.max()))
        self.gamma = power if self.params.gamma is None else self.params.gamma
        self.histogram = degree_histogram(self.item_degrees, self.gamma)
        q = self.posterior = self._initial_posterior(interactions.shape, options.start)
        seed = sampling_seed(self.seed, interactions, options.start)
        if self.params.blocks == 1:
            yield partial(self._run_iteration, q, self._sampler(interactions, options.explicit_negatives, seed))
            return
        from oneclass.models.random_graph.blocks import BlockConfig, start_distributed_fit  # few fits are by blocks

        config = BlockConfig(self.params, seed)
        with start_distributed_fit(config, q, self.histogram, interactions, options) as blocks:
            self.posterior = blocks
            del q  # whose users lie on disk
            yield blocks.iterate
            self.posterior = blocks.gather()

    def _has_converged(self, t: int, bounds: list[float], values: dict[str, float]) -> bool:
        """Whether the bound has converged: it hardly rose since the last check, long enough after the burn-in."""
        if "bound" not in values:
            return False
        bounds.append(values["bound"])
        return t >= self._burn_in_end() + BOUND_EVERY and has_converged(bounds[-2], bounds[-1], TOLERANCE)

    def _burn_in_end(self) -> int:
        """Return the first iteration whose bound counts for convergence."""
        return max(T_EPSILON, T_TAU if self.params.learn_tau else 0) + BURN_IN_ITERATIONS

    def _run_iteration(self, q: RandomGraphPosterior, sampler: GraphSampler, t: int, step: float) -> dict[str, float]:
        """Lines 5 to 20 of Algorithm 1.

        The bound is that of the posterior at the beginning of the iteration. The new hidden graph is independent of
        that posterior, so the bound is an unbiased estimate of the objective (up to the entropy of q(H)).
        """
        graph = sampler.draw(t)
        values = {"bound": q.bound(graph)} if self.params.evaluates_bound(t) else {}
        q.update_item_biases(graph, step)
        q.update_users(graph, step)
        q.update_items(graph, step)
        if self.params.learns_tau(t):
            q.update_taus(step)
        return values

    def _fold_in(self, histories: csr_matrix) -> GaussianFactors:
        """Find q(u_m, b_m) of users who were not in training, with fixed items.

        That is so with `explicit_negatives` too: histories are of likes only, and a new user's explicit negatives are
        not used.
        """
        from oneclass.models.random_graph.fold_in import fold_in_users

        pi = self.histogram, self.compute_once("alias", lambda: build_alias_table(self.histogram))
        table, taus = self.compute_once("table", self.posterior.items.table), self.posterior.taus
        return fold_in_users(copy_pattern(histories), table, pi, self.seed, taus, self.params.factors)

    def item_vectors(self) -> np.ndarray:
        """Return the means of the items' factors."""
        return self.posterior.items.mean

    def negative_distribution(self) -> "WithoutReplacement | None":
        """Return the distribution of section 4.1, as many negatives as likes; None with observed negatives."""
        from oneclass.models.negatives.distributions import WithoutReplacement

        return None if self.params.explicit_negatives else WithoutReplacement(self.histogram)

    def _user_side(self, histories: csr_matrix, users: np.ndarray | None) -> GaussianFactors:
        return self.fold_in(histories) if users is None else self.posterior.users.rows(users)

    def _item_side(self) -> GaussianFactors:
        return self.posterior.items

    def _popularity(self) -> np.ndarray:
        return self.histogram

    def _sampler(self, interactions: csr_matrix, explicit_negatives: csr_matrix | None, seed: int) -> GraphSampler:
        units = np.arange(interactions.shape[0], dtype=np.uint64)
        likes = copy_pattern(interactions)
        if explicit_negatives is None or not self.params.explicit_negatives:
            return GraphSampler(likes, self.histogram, seed, units)
        from oneclass.models.random_graph.explicit_negatives import ExplicitNegativeSampler

        return ExplicitNegativeSampler(likes, copy_pattern(explicit_negatives), self.histogram, seed, units)

    def _initial_posterior(self, shape: tuple[int, int], start: Start | None) -> RandomGraphPosterior:
        """Return small random means, or the posterior of the earlier fit."""
        settings = self.params
        q = RandomGraphPosterior(
            users=GaussianFactors.prior(shape[0], settings.factors, clamped=True),
            items=GaussianFactors.prior(shape[1], settings.factors, clamped=False),
            taus=PrecisionPosterior.from_mean(settings.tau, shape, settings.factors),
        )
        for side, draws in ((q.users, START_USERS), (q.items, START_ITEMS)):  # u = v = 0 is a fixed point
            side.mean = normals(self.seed, draws, *side.mean.shape) * np.float32(INITIAL_SCALE)
        if start is not None:
            q.copy_earlier(start, learned_taus=settings.learn_tau)
        return q

    def _arrays(self) -> dict[str, np.ndarray]:
        q = self.posterior
        arrays = {"histogram": self.histogram, "gamma": np.array(self.gamma)}
        arrays |= {"tau_shape": q.taus.shape, "tau_rate": q.taus.rate}
        arrays |= q.users.to_arrays("user") | q.items.to_arrays("item")
        # Users' biases are clamped at zero, with an infinite precision.
        del arrays["user_bias_mean"], arrays["user_bias_precision"]
        return arrays

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        clamped = GaussianFactors.prior(len(arrays["user_mean"]), 1, clamped=True)
        arrays |= {"user_bias_mean": clamped.bias_mean, "user_bias_precision": clamped.bias_precision}
        users, items = (GaussianFactors.from_arrays(arrays, side) for side in ("user", "item"))
        items = items.rows(slice(None))  # the kernels are compiled for writable arrays
        taus = PrecisionPosterior(np.array(arrays["tau_shape"]), np.array(arrays["tau_rate"]))
        self.posterior = RandomGraphPosterior(users, items, taus)
        self.histogram, self.gamma = np.array(arrays["histogram"]), float(arrays["gamma"])
