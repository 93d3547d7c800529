"""Weighted matrix factorization: alternating least squares for implicit feedback.

Factors u of users and v of items minimize, over all pairs of a user and an item, observed (S) or not,

    sum_S (u'v - 1)^2 + alpha0 sum_all (u'v)^2
    + lambda (sum_users (d + alpha0 items) |u|^2 + sum_items (d + alpha0 users) |v|^2),

where d is the number of edges of a user or an item: the loss of Rendle, Krichene, Zhang and Koren, "Revisiting the
performance of iALS on item recommendation benchmarks", 2021, with nu = 1. All terms of a user may be weighted by a
power of the user's degree, as in `models.mrf.dense`; an item's d and `users` are then sums of these weights. What was
considered and not liked may be in S too, with (u'v - explicit_negative_weight)^2.

A good alpha0 and lambda depend on the density of the log; their ratios do not. Settings that are left out come from

    alpha0 users items = UNOBSERVED |S|              the pairs together weigh so many times what the edges weigh
    lambda (1 + alpha0 users items / |S|) = SHRINKAGE max(1, LONG / d)^GROWTH

for users with d edges on average: the penalty of a mean user's row is a share of these edges, which is larger for short
histories, most of all over many items. UNOBSERVED is half as large for these.
A row's penalty is lambda (d + alpha0 others), on average lambda d (1 + alpha0 users items / |S|).

While one side is fixed, each row of the other is a small linear system (eq. 4 of Hu, Koren and Volinsky,
"Collaborative filtering for implicit feedback datasets", 2008), made of the row's own edges and of the Gram matrix of
the fixed side. A fit takes some steps of conjugate gradients from the row of the last pass; for unseen users they go on
from zero until the residual is rounding.
"""

from time import perf_counter
from typing import ClassVar, Self

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.derived_settings import (
    LONG,
    RelativeRange,
    interpolate_by_history,
    interpolate_by_items,
    mean_degree,
)
from oneclass.models.fit_options import Epoch, FitOptions, copy_rows, has_converged
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.numerics.column_moments import degree_weights_or_ones
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.numerics.validation import row_sums
from oneclass.models.settings import Choice, ModelSettings, NumericRange, SearchSpace
from oneclass.models.wmf.normal_equations import Loss, RowSystems, draw_factor_table, empty_table, factor_view

UNOBSERVED = 6.0, 12.0  # of short and of long histories, for the default loss
SHRINKAGE = 0.08
GROWTH = 0.75, 1.0  # with few and with many items
TOLERANCE = 0.001  # a fit ends where a pass has moved the loss by less than this share
STEPS = 3  # of conjugate gradients, for each row and pass
INITIAL_SCALE = 0.1  # sqrt(K) times the standard deviation of the factors before the first pass


class WMFSettings(ModelSettings):
    """The defaults were chosen on validation users of seven logs, from 41,000 to 190,000 edges."""

    factors: int = Field(128, ge=1, le=4096, description="Length K of the factors of users and items.")
    iterations: int = Field(16, ge=1, description="Largest number of passes over the users and then the items.")
    unobserved_weight: float | None = Field(
        None,
        gt=0,
        le=100,
        description="Weight alpha0 of all pairs, in addition to 1 for the observed ones. By default 12 times the "
        "density of the log where a mean user has 35 likes or more, 6 times where 12 or fewer, and between these "
        "between.",
    )
    regularization: float | None = Field(
        None,
        gt=0,
        description="Penalty lambda on the squares of the factors. By default .08 / (1 + alpha0 / density), times "
        "35 / d where users have d < 35 edges on average, or (35 / d)^.75 with 300 items or fewer.",
    )
    user_weight_exponent: float = Field(
        0.3,
        ge=0,
        le=2,
        description="Pairs are weighted by degree^-exponent of their user, scaled to mean one; 0 for equal weights.",
    )
    explicit_negative_weight: float = Field(
        0.0,
        ge=0,
        le=1,
        description="w: the value that a pair of a user and an item that the user considered and did not like is "
        "fitted to, where a like is fitted to 1; 0 leaves such pairs out. Above 0, a run keeps them, where the log has "
        "some.",
    )
    search_space: ClassVar[SearchSpace] = {
        "factors": Choice((64, 128, 256, 512), manual_only=True),
        "iterations": NumericRange(4, 24, manual_only=True),
        "unobserved_weight": RelativeRange(1 / 16, 16),
        "regularization": RelativeRange(1 / 8, 8),
        "user_weight_exponent": NumericRange(0.0, 0.5),
    }
    explicit_search_space: ClassVar[SearchSpace] = {"explicit_negative_weight": Choice((0.0, 0.1, 0.2, 0.3, 0.5, 0.7))}
    initial_trials: ClassVar = (
        {"factors": 256, "regularization": 1.6, "unobserved_weight": 1.6, "user_weight_exponent": 0.2},
        {"factors": 256, "regularization": 3.2, "unobserved_weight": 4.2, "user_weight_exponent": 0.35},
        {"factors": 512, "regularization": 0.7},  # for wide catalogues: +.014 of nDCG@100 on citeulike-a
    )

    @property
    def reads_explicit_negatives(self) -> bool:
        """Whether a fit uses explicit negatives (`FitOptions.explicit_negatives`)."""
        return self.explicit_negative_weight > 0

    def resolve(self, interactions: csr_matrix) -> Self:
        """Derive alpha0 and lambda from the data."""
        users, items = interactions.shape
        density = interactions.nnz / (users * items)
        likes = mean_degree(interactions)
        weight = self.unobserved_weight
        if weight is None:
            weight = interpolate_by_history(likes, *UNOBSERVED) * density
        penalty = self.regularization
        if penalty is None:
            growth = max(1, LONG / likes) ** interpolate_by_items(items, *GROWTH)
            penalty = SHRINKAGE * growth / (1 + weight / density)
        return self.model_copy(update={"unobserved_weight": weight, "regularization": penalty})


class WMF(Model[WMFSettings]):
    """Weighted matrix factorization (iALS): factors fitted to 1 on edges and, with a small weight, to 0 on all pairs.

    The loss of Rendle et al. (2021), by alternating least squares (eq. 4 of Hu et al. 2008).

    Attributes:
        user_factors: float32 (users, K); zeros for a user without edges.
        item_factors: float32 (items, K); zeros for an item without edges.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import WMF
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = WMF(factors=4).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "wmf"
    Settings = WMFSettings
    is_iterative = True

    @classmethod
    def estimate_cost(cls, settings: WMFSettings, log: LogSize) -> FitCost:
        """Estimate what a fit on a log of this size takes."""
        return FitCost.of_factors(log, settings.factors, 2e-6, remedy="lower wmf.factors", min_users=64)

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        chosen, factors, before = self.params, self.params.factors, np.inf
        users, items, constant = self._build_systems(interactions, options)
        of_users, of_items = self._draw_tables(interactions.shape, options)
        self.user_factors, self.item_factors = factor_view(of_users, factors), factor_view(of_items, factors)
        for number in range(1, chosen.iterations + 1):
            started = perf_counter()
            users.solve(of_users, of_items, factors, STEPS)
            value = items.solve(of_items, of_users, factors, STEPS) + constant + users.penalty(of_users, factors)
            options.on_epoch(Epoch(number, chosen.iterations, perf_counter() - started, {"loss": value}))
            if has_converged(before, value, TOLERANCE):
                break
            before = value
        self.user_factors, self.item_factors = self.user_factors.copy(), self.item_factors.copy()

    def _build_systems(self, interactions: csr_matrix, options: FitOptions) -> tuple[RowSystems, RowSystems, float]:
        """Return the systems of the users and of the items, and the constant of the loss."""
        chosen = self.params
        edges, targets, value = interactions, None, chosen.explicit_negative_weight
        if value and (negatives := options.explicit_negatives) is not None and negatives.nnz:
            likes = interactions.astype(bool).astype(np.float64)
            edges = csr_matrix(likes + value * negatives.astype(bool))
            targets = edges.data
        degrees = np.diff(edges.indptr) if targets is None else row_sums(edges.indptr, targets)
        weights = degree_weights_or_ones(degrees, chosen.user_weight_exponent)
        loss, by_item = self._loss(has_targets=targets is not None), edges.T.tocsr()
        users, items = RowSystems(edges, loss, weights, None), RowSystems(by_item, loss, None, weights)
        return users, items, loss.constant(by_item, None, weights)

    def _draw_tables(self, shape: tuple[int, int], options: FitOptions) -> tuple[np.ndarray, np.ndarray]:
        """Draw the factors before the first pass, or take those of an earlier fit."""
        factors, seed = self.params.factors, self.seed
        of_users = draw_factor_table(shape[0], factors, INITIAL_SCALE, seed, "wmf users")
        of_items = draw_factor_table(shape[1], factors, INITIAL_SCALE, seed, "wmf items")
        if start := options.start:
            copy_rows(factor_view(of_users, factors), start.previous.user_factors, start.users)
            copy_rows(factor_view(of_items, factors), start.previous.item_factors, start.items)
        return of_users, of_items

    def _fold_in(self, histories: csr_matrix) -> np.ndarray:
        """Find the factors of users who were not in training, float32 (block, K), with fixed items."""
        factors = self.params.factors
        of_users, systems = empty_table(histories.shape[0], factors), RowSystems(histories, self._loss(), None, None)
        of_items = self.compute_once("table", self._item_table)
        gram = self.compute_once("gram", lambda: systems.gram(of_items, factors))
        systems.solve(of_users, of_items, factors, factors, gram)
        return factor_view(of_users, factors).copy()

    def _item_table(self) -> np.ndarray:
        """The items' factors in the layout of the kernels."""
        table = empty_table(self.item_count, self.params.factors)
        factor_view(table, self.params.factors)[:] = self.item_factors
        return table

    def _loss(self, *, has_targets: bool = False) -> Loss:
        weight, regularization = self.params.unobserved_weight, self.params.regularization
        assert weight is not None and regularization is not None  # by `resolve`
        return Loss(weight, regularization, has_targets)

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        of_users = self.fold_in(histories) if users is None else np.asarray(self.user_factors[users])
        return dense_times(of_users, self.compute_once("columns", lambda: np.ascontiguousarray(self.item_factors.T)))

    def item_vectors(self) -> np.ndarray:
        """Return the items' factors."""
        return self.item_factors
