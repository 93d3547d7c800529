"""Weighted matrix factorization: alternating least squares for implicit feedback.

Factors u of users and v of items minimize, over all pairs of a user and an item, observed (S) or not,

    rendle2021:  sum_S (u'v - 1)^2 + alpha0 sum_all (u'v)^2
                 + lambda (sum_users (d + alpha0 items)^nu |u|^2 + sum_items (d + alpha0 users)^nu |v|^2)
    hu2008:      sum_all c (p - u'v)^2 + lambda (sum_users |u|^2 + sum_items |v|^2),
                 c = 1 + alpha count and p = 1 on S, c = 1 and p = 0 elsewhere,

where d is the number of edges of a user or an item. The first is the loss of Rendle, Krichene, Zhang and Koren,
"Revisiting the performance of iALS on item recommendation benchmarks", 2021; the second is eq. 3 of Hu, Koren and
Volinsky, "Collaborative filtering for implicit feedback datasets", 2008. All terms of a user may be weighted by a power
of the user's degree, as in `models.mrf.dense`; an item's d and `users` are then sums of these weights. What was
considered and not liked may be in S too, with (u'v - explicit_negative_weight)^2. With `use_weights` the squares of S
in rendle2021 are weighted by alpha sqrt(weight), 1 on average; the root keeps a few large weights from outweighing the
rest.

A good alpha0 and lambda depend on the density of the log; their ratios do not. Settings that are left out come from

    alpha0 users items = UNOBSERVED |S|              the pairs together weigh so many times what the edges weigh
    lambda (1 + alpha0 users items / |S|) = SHRINKAGE max(1, LONG / d)^GROWTH

for users with d edges on average: the penalty of a mean user's row is a share of these edges, which is larger for short
histories, most of all over many items. UNOBSERVED is half as large for these.
With nu = 1 a row's penalty is lambda (d + alpha0 others), on average lambda d (1 + alpha0 users items / |S|).

With attributes, the f of a user and the g of an item (`models.attributes.encoder`), the rows have prior means,
x_u ~ N(A'f, .) and y_i ~ N(B'g, .): the penalty of a user's row becomes that of |u - A'f|^2, the penalty of an item's
that of |v - B'g|^2, and the loss gains

    attribute_regularization (mean penalty of a user |A|^2 + mean penalty of an item |B|^2),

with the mean of lambda (d + alpha0 others)^nu over the rows that have an edge. A pass is A, the users, B, the items; A
and B are ridge regressions. A row without an edge is not in the loss; a map that is fitted to the final rows of its
side represents it (`models.attributes.prior_means`).

While one side is fixed, each row of the other is a small linear system (eq. 4 of Hu et al.), made of the row's own
edges and of the Gram matrix of the fixed side.
"""

from dataclasses import replace
from time import perf_counter
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from scipy.sparse import csr_matrix

from oneclass.models.attributes.new_items import NewItems
from oneclass.models.base import Model
from oneclass.models.fit_options import Epoch, FitOptions, copy_rows, has_converged
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.numerics.column_moments import degree_weights_or_ones
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.numerics.validation import mean_degree, row_sums
from oneclass.models.settings import (
    LONG,
    Choice,
    ModelSettings,
    NumericRange,
    RelativeRange,
    SearchSpace,
    interpolate_by_history,
    interpolate_by_items,
)
from oneclass.models.wmf.normal_equations import (
    FactorSide,
    Loss,
    RowSystems,
    draw_factor_table,
    empty_table,
    factor_view,
    merge_explicit_negatives,
)

UNOBSERVED = 6.0, 12.0  # of short and of long histories, for the default loss
SHRINKAGE = 0.08
GROWTH = 0.75, 1.0  # with few and with many items
HU_REGULARIZATION, HU_ALPHA = 0.007, 5.0  # of hu2008, which no rule has been learned for
EXACT = 0  # steps of conjugate gradients


class WMFSettings(ModelSettings):
    """The defaults were chosen on validation users of seven logs, from 41,000 to 190,000 edges."""

    factors: int = Field(128, ge=1, le=4096, description="Length K of the factors of users and items.")
    iterations: int = Field(16, ge=1, description="Largest number of passes over the users and then the items.")
    tolerance: float = Field(
        0.001,
        ge=0,
        lt=1,
        description="Stop when a pass has moved the loss by less than this share; 0 makes all passes.",
    )
    loss: Literal["rendle2021", "hu2008"] = Field(
        "rendle2021", description="rendle2021 does not use the counts; hu2008 has the confidence 1 + alpha count."
    )
    unobserved_weight: float | None = Field(
        None,
        gt=0,
        le=100,
        description="Weight alpha0 of all pairs, in addition to 1 for the observed ones; for rendle2021. By default 12 "
        "times the density of the log where a mean user has 35 likes or more, 6 times where 12 or fewer, and between "
        "these between.",
    )
    regularization: float | None = Field(
        None,
        gt=0,
        description="Penalty lambda on the squares of the factors. By default .08 / (1 + alpha0 / density), times "
        "35 / d where users have d < 35 edges on average, or (35 / d)^.75 with 300 items or fewer; and .007 for "
        "hu2008, where some tens are usual.",
    )
    regularization_exponent: float = Field(
        1.0,
        ge=0,
        le=2,
        description="Exponent nu by which a row's penalty grows with its weight in the loss; for rendle2021.",
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
        "fitted to, where a like is fitted to 1; 0 leaves such pairs out; for rendle2021. Above 0, a run keeps them, "
        "where the log tells of any.",
    )
    use_weights: bool = Field(
        False,
        description="Weigh the squares of observed pairs by alpha sqrt(weight), where the weight is the number of "
        "events if values do not add up; for rendle2021. hu2008 always weighs, by 1 + alpha weight.",
    )
    attribute_regularization: float = Field(
        100.0,
        gt=0,
        description="With attributes: penalty on the squares of the maps from features to factors, in mean penalties "
        "of a row; the larger it is, the less attributes move the factors of known rows.",
    )
    alpha: float | None = Field(
        None,
        gt=0,
        description="Confidence that one event, or a weight of one, adds to an edge: 5 by default for hu2008; with "
        "`use_weights` by default such that the mean edge weighs 1.",
    )
    solver: Literal["cg", "cholesky"] = Field(
        "cg",
        description="cg: conjugate gradients from the factors of the last pass; cholesky: the exact solution.",
    )
    cg_steps: int = Field(3, ge=1, description="Steps of conjugate gradients for each row and pass.")
    initial_scale: float = Field(
        0.1, gt=0, le=10, description="sqrt(K) times the standard deviation of the factors before the first pass."
    )
    search_space: ClassVar[SearchSpace] = {
        "factors": Choice((64, 128, 256, 512), manual_only=True),
        "iterations": NumericRange(4, 24, manual_only=True),
        "unobserved_weight": RelativeRange(16),
        "regularization": RelativeRange(8),
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

    @model_validator(mode="after")
    def _check_explicit_negatives(self) -> Self:
        if self.explicit_negative_weight and self.loss == "hu2008":
            raise ValueError("explicit_negative_weight: hu2008 weighs by counts of likes; take loss = rendle2021")
        if self.explicit_negative_weight and self.use_weights:
            raise ValueError("explicit_negative_weight: these pairs have no weight; take use_weights = false")
        return self

    def resolve(self, interactions: csr_matrix) -> Self:
        """Derive alpha0, lambda and alpha from the data."""
        users, items = interactions.shape
        density = interactions.nnz / (users * items)
        likes = mean_degree(interactions)
        weight = self.unobserved_weight
        if weight is None:
            weight = interpolate_by_history(likes, *UNOBSERVED) * density
        penalty = self.regularization
        if penalty is None and self.loss == "hu2008":
            penalty = HU_REGULARIZATION
        elif penalty is None:
            growth = max(1, LONG / likes) ** interpolate_by_items(items, *GROWTH)
            penalty = SHRINKAGE * growth / (1 + weight / density)
        alpha = self.alpha
        if alpha is None and self.loss == "hu2008":
            alpha = HU_ALPHA
        elif alpha is None and self.use_weights:
            alpha = 1 / float(np.sqrt(interactions.data, dtype=np.float64).mean())
        return self.model_copy(update={"unobserved_weight": weight, "regularization": penalty, "alpha": alpha})


class WMF(Model[WMFSettings]):
    """Weighted matrix factorization (iALS): factors fitted to 1 on edges and, with a small weight, to 0 on all pairs.

    Rendle et al. (2021) by default, or Hu et al. (2008), eq. 3, by alternating least squares (eq. 4).

    Attributes:
        user_factors: float32 (users, K); zeros for a user without edges, or with attributes f user_map.
        item_factors: float32 (items, K); zeros for an item without edges, or with attributes g item_map.
        user_map, item_map: the maps of rows without an edge, float32 (F, K); None without attributes.

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
    learns_attributes = True

    @classmethod
    def estimate_cost(cls, settings: WMFSettings, log: LogSize) -> FitCost:
        """Estimate what a fit on a log of this size takes."""
        return FitCost.of_factors(log, settings.factors, 2e-6, remedy="lower wmf.factors", min_users=64)

    user_map: np.ndarray | None = None
    item_map: np.ndarray | None = None

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        chosen, before = self.params, np.inf
        steps = chosen.cg_steps if chosen.solver == "cg" else EXACT
        with kernel_threads(self.threads):
            users, items, constant = self._initialize(interactions, options)
            self.user_factors, self.item_factors = users.vectors, items.vectors
            for number in range(1, chosen.iterations + 1):
                started = perf_counter()
                users.update(items, steps)
                value = items.update(users, steps) + constant + users.penalty()
                options.on_epoch(Epoch(number, chosen.iterations, perf_counter() - started, {"loss": value}))
                if has_converged(before, value, chosen.tolerance):
                    break
                before = value
            self.user_factors, self.user_map = users.finish(options.user_features)
            self.item_factors, self.item_map = items.finish(options.item_features)

    def _initialize(self, interactions: csr_matrix, options: FitOptions) -> tuple[FactorSide, FactorSide, float]:
        """Return the users and the items with their initial factors, and the constant of the loss."""
        chosen, seed, (users, items) = self.params, self.seed, interactions.shape
        edges, targets = merge_explicit_negatives(
            interactions, options.explicit_negatives, chosen.explicit_negative_weight
        )
        degrees = np.diff(edges.indptr) if targets is None else row_sums(edges.indptr, targets)
        weights = degree_weights_or_ones(degrees, chosen.user_weight_exponent)
        of_users = draw_factor_table(users, chosen.factors, chosen.initial_scale, seed, "wmf users")
        of_items = draw_factor_table(items, chosen.factors, chosen.initial_scale, seed, "wmf items")
        if start := options.start:
            copy_rows(factor_view(of_users, chosen.factors), start.previous.user_factors, start.users)
            copy_rows(factor_view(of_items, chosen.factors), start.previous.item_factors, start.items)
        loss, factors = replace(self._loss(), targets=targets is not None), chosen.factors
        user_systems, by_item = RowSystems(edges, loss, weights, None), edges.T.tocsr()
        item_systems, constant = RowSystems(by_item, loss, None, weights), loss.constant(by_item, None, weights)
        user_prior, item_prior = (
            systems.prior_means(features, chosen.attribute_regularization, factors)
            for systems, features in ((user_systems, options.user_features), (item_systems, options.item_features))
        )
        users_side = FactorSide(user_systems, of_users, factors, user_prior)
        return users_side, FactorSide(item_systems, of_items, factors, item_prior), constant

    def fold_in(self, histories: csr_matrix, user_features: csr_matrix | None = None) -> np.ndarray:
        """Find the factors of users who were not in training, float32 (block, K): the exact solution with fixed
        items.

        Args:
            user_features: float32 (block, F), if the users' attributes are known and the fit had some; without, their
                prior means are zero.
        """
        histories, factors = self.check_histories(histories), self.params.factors
        of_users, systems = empty_table(histories.shape[0], factors), RowSystems(histories, self._loss(), None, None)
        with kernel_threads(self.threads):
            of_items = self.compute_once("table", self._item_table)
            gram = self.compute_once("gram", lambda: systems.gram(of_items, factors))
            if user_features is None:
                systems.solve(of_users, of_items, factors, EXACT, gram)
                return factor_view(of_users, factors).copy()
            means = self._map_features(user_features, self.user_map, "users")
            systems.solve(of_users, of_items, factors, EXACT, gram, means)
        return np.where(systems.has_edges[:, None], factor_view(of_users, factors), means)

    def _map_features(self, features: csr_matrix, coefficients: np.ndarray | None, side: str) -> np.ndarray:
        """Return the prior means of users or items by their features, float32 (rows, K)."""
        if coefficients is None:
            raise ValueError(f"{self.name}: fitted without attributes of {side}; give FitOptions.{side[:-1]}_features")
        return (features @ coefficients).astype(np.float32)

    def _item_table(self) -> np.ndarray:
        """The items' factors in the layout of the kernels."""
        table = empty_table(self.item_count, self.params.factors)
        factor_view(table, self.params.factors)[:] = self.item_factors
        return table

    def _loss(self) -> Loss:
        chosen, regularization = self.params, self.params.regularization
        assert regularization is not None  # by `resolve`
        if chosen.loss == "hu2008":
            assert chosen.alpha is not None
            return Loss(1.0, 1.0, chosen.alpha, regularization, 0.0)
        assert chosen.unobserved_weight is not None
        alpha = chosen.alpha if chosen.use_weights and chosen.alpha else 0.0
        return Loss(
            chosen.unobserved_weight, 0.0, alpha, regularization, chosen.regularization_exponent, count_power=0.5
        )

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        of_users = self.fold_in_users(histories) if users is None else np.asarray(self.user_factors[users])
        with kernel_threads(self.threads):
            return dense_times(
                of_users, self.compute_once("columns", lambda: np.ascontiguousarray(self.item_factors.T))
            )

    def represent_items(self, features: csr_matrix) -> np.ndarray:
        return self._map_features(features, self.item_map, "items")

    def scores_of_new_items(
        self, histories: csr_matrix, new_items: NewItems, users: np.ndarray | None, score: str
    ) -> np.ndarray:
        of_users = self.fold_in_users(histories) if users is None else np.asarray(self.user_factors[users])
        with kernel_threads(self.threads):
            return dense_times(of_users, np.ascontiguousarray(new_items.representation.T))

    def item_vectors(self) -> np.ndarray:
        """Return the items' factors."""
        return self.item_factors
