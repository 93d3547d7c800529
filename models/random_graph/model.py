"""One-class collaborative filtering with random graphs (Paquet and Koenigstein 2014).

A like is an edge of the observed graph G. The hidden graph H has an edge for every item that a user considered. For
each edge of H a coin with p(like) = sigma(u_m'v_n + b_m + b_n) decides whether it is also in G. So the model keeps
apart how popular an item is (pi_n: how often it is considered) and how well it is liked once it is considered.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.fit_options import Epoch, FitOptions, has_converged, sampling_seed, skipped_epochs
from oneclass.models.negatives.sampling import build_alias_table, degree_histogram, histogram_power
from oneclass.models.numerics.adjacency import copy_pattern
from oneclass.models.numerics.logistic_bound import GaussianFactors
from oneclass.models.random_graph.inference import (
    T_EPSILON,
    GraphSampler,
    PrecisionPosterior,
    RandomGraphPosterior,
    step_sizes,
)
from oneclass.models.settings import Choice, ModelSettings, NumericRange, SearchSpace

if TYPE_CHECKING:  # a fit needs neither
    from oneclass.models.memory_estimates import FitCost, LogSize
    from oneclass.models.negatives.distributions import WithoutReplacement
    from oneclass.models.negatives.like_probability import LikeScorer

T_TAU = 10  # iterations before the precisions are learned
BOUND_EVERY = 5  # iterations between evaluations of the bound
BURN_IN_ITERATIONS = 10  # the bound may jump after the steps begin to shrink, or the precisions to be learned
TOLERANCE = 0.003  # a fit ends where the bound has moved by less than this share between two evaluations
IterationStep = Callable[[int, float], dict[str, float]]  # number and step size of an iteration -> reported values


class RandomGraphSettings(ModelSettings):
    """Settings of the random-graph model; the paper's values where it states them."""

    search_space: ClassVar[SearchSpace] = {
        "factors": NumericRange(10, 100, log=True, manual_only=True),
        "iterations": NumericRange(30, 80, manual_only=True),
        "gamma": NumericRange(0.2, 1.0, manual_only=True),
        "learn_tau": Choice((False, True)),
        "tau": NumericRange(0.3, 10.0, log=True),
        "popularity_weight": NumericRange(0.0, 1.0),
    }
    initial_trials: ClassVar = ({"factors": 64, "learn_tau": False, "tau": 0.6},)

    factors: int = Field(20, ge=1, le=512, description="K, the number of latent features.")
    iterations: int = Field(40, ge=1, description="t_max, the largest number of hidden graphs, and of passes.")
    r: float = Field(
        1.0, gt=0, description="r of eq. 8, the most popular negative's weight over its degree; sets gamma (eq. 9)."
    )
    gamma: float | None = Field(
        None, ge=-2, le=2, description="Power of the histogram pi_n = d_n^gamma (eq. 7); overrides r."
    )
    explicit_negatives: bool = Field(
        False,
        description="Take the items that a user considered and did not like, where a log has such, for edges of the "
        "hidden graph, and draw only what they leave of d_m negatives (section 7).",
    )
    learn_tau: bool = Field(True, description="Learn the precisions tau (eq. 20); otherwise they stay at `tau`.")
    tau: float = Field(1.0, gt=0, description="Precisions of the priors, until they are learned.")
    popularity_weight: float = Field(0.5, ge=0, description="a in `popularity_x_odds`, logit(like) + a log pi.")
    blocks: int = Field(
        1, ge=1, description="Blocks of users that are fitted apart; their messages to items add up (section 5.2)."
    )
    refreshed: int = Field(
        0, ge=0, description="Blocks that send new messages before an update of the items, in turn (eq. 21); 0: all."
    )

    @property
    def reads_explicit_negatives(self) -> bool:
        """Whether a fit uses explicit negatives (`FitOptions.explicit_negatives`)."""
        return self.explicit_negatives

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.explicit_negatives and self.blocks > 1:
            raise ValueError("explicit_negatives: a fit by blocks does not take them; set blocks = 1")
        return self

    def evaluates_bound(self, t: int) -> bool:
        """Whether the bound is evaluated at iteration t."""
        return t % BOUND_EVERY == 0 or t == self.iterations

    def learns_tau(self, t: int) -> bool:
        """Whether the precisions are updated in iteration t."""
        return self.learn_tau and t > T_TAU


class RandomGraph(Model[RandomGraphSettings]):
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
    score_names = ("like", "popularity_x_like", "popularity_x_odds")
    is_iterative = True

    @classmethod
    def estimate_cost(cls, settings: RandomGraphSettings, log: "LogSize") -> "FitCost":
        """Estimate the cost of a fit."""
        from oneclass.models.random_graph.blocks import estimate_fit

        return estimate_fit(settings, log)

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        power = histogram_power(self.params.r, int(self.item_degrees.max()))
        self.gamma = power if self.params.gamma is None else self.params.gamma
        self.histogram = degree_histogram(self.item_degrees, self.gamma)
        q = RandomGraphPosterior.initial(interactions.shape, self.params, self.seed, options.start)
        seed = sampling_seed(self.seed, interactions, options.start)
        if self.params.blocks == 1:
            sampler = self._make_sampler(interactions, options.explicit_negatives, seed)
            self._iterate(partial(self._run_iteration, q, sampler), options)
            self.posterior = q
            return
        from oneclass.models.random_graph.blocks import BlockConfig, start_distributed_fit  # few fits are by blocks

        with start_distributed_fit(BlockConfig(self.params, seed, self.histogram), q, interactions, options) as blocks:
            del q  # whose users lie on disk
            self._iterate(blocks.iterate, options)
            self.posterior = blocks.gather()

    def _iterate(self, run_iteration: IterationStep, options: FitOptions) -> None:
        """Run Algorithm 1 until the bound hardly rises from one check to the next, long enough after the burn-in."""
        settings, before = self.params, -np.inf
        settled = max(T_EPSILON, T_TAU if settings.learn_tau else 0) + BURN_IN_ITERATIONS
        skipped = min(settled - 1, skipped_epochs(settings.iterations, options.start))
        for t, step in enumerate(step_sizes(settings.iterations), start=1):
            if t <= skipped:  # a warm start begins where the bound may be level
                continue
            started = time.perf_counter()
            values = {"step_size": step, **run_iteration(t, step)}
            options.on_epoch(Epoch(t, settings.iterations, time.perf_counter() - started, values))
            if settings.evaluates_bound(t):
                if t >= settled + BOUND_EVERY and has_converged(before, values["bound"], TOLERANCE):
                    break
                before = values["bound"]

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

    def _scorer(self) -> "LikeScorer":
        from oneclass.models.negatives.like_probability import LikeScorer

        q, pi, weight = self.posterior.items, self.histogram, self.params.popularity_weight
        return self.compute_once("scorer", lambda: LikeScorer(q, pi, weight))

    def _like(
        self, histories: csr_matrix, *, users: np.ndarray | None = None, items: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        return self._scorer().like(self._user_side(histories, users), items)

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        return next(self._scorer().compute_scores(self._user_side(histories, users), (score,)))

    def _iterate_scores(self, histories: csr_matrix, users: np.ndarray | None) -> Iterator[np.ndarray]:
        return self._scorer().compute_scores(self._user_side(histories, users), self.score_names)

    def _make_sampler(self, interactions: csr_matrix, explicit_negatives: csr_matrix | None, seed: int) -> GraphSampler:
        units = np.arange(interactions.shape[0], dtype=np.uint64)
        likes = copy_pattern(interactions)
        if explicit_negatives is None or not self.params.explicit_negatives:
            return GraphSampler(likes, self.histogram, seed, units)
        from oneclass.models.random_graph.explicit_negatives import ExplicitNegativeSampler

        return ExplicitNegativeSampler(likes, copy_pattern(explicit_negatives), self.histogram, seed, units)

    def _arrays(self) -> dict[str, np.ndarray]:
        q = self.posterior
        arrays = {"histogram": self.histogram, "gamma": np.array(self.gamma)}
        arrays |= {"tau_shape": q.taus.shape, "tau_rate": q.taus.rate}
        arrays |= {"user_mean": q.users.mean, "user_precision": q.users.precision}  # users' biases are clamped
        return arrays | q.items.to_arrays("item")

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        mean, precision = arrays["user_mean"], arrays["user_precision"]
        users = replace(GaussianFactors.prior(len(mean), 1, clamped=True), mean=mean, precision=precision)
        items = GaussianFactors.from_arrays(arrays, "item").rows(slice(None))  # the kernels take writable arrays
        taus = PrecisionPosterior(np.array(arrays["tau_shape"]), np.array(arrays["tau_rate"]))
        self.posterior = RandomGraphPosterior(users, items, taus)
        self.histogram, self.gamma = np.array(arrays["histogram"]), float(arrays["gamma"])
