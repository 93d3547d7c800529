"""The fully connected Gaussian Markov random field: one regression weight for every ordered pair of items.

Steck, "Markov Random Fields for Collaborative Filtering", 2019: B = I - C dMat(1 / diag C), eq. 4, with C the
inverse of the regularized covariance matrix of the items, and the rescaling of the columns by std^alpha of
its section 5. Minimizes |X - X B|^2 + l2 |B|^2 under diag(B) = 0 (eq. 3) over the centred, rescaled columns.
"""

from time import perf_counter
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from oneclass.models.derived_settings import RelativeRange
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.item_weights import ItemWeights, RegressionSettings, default_l2
from oneclass.models.memory_estimates import BYTES_PER_EDGE, FitCost, LogSize
from oneclass.models.numerics.column_moments import Rescaling, column_moments, rescale_columns
from oneclass.models.numerics.gram_inverse import mirror_lower, regularized_inverse, work_bytes
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.settings import Choice, ModelSettings, SearchSpace

INVERSE_SECONDS = 1e-11  # of an entry of the Gram matrix and an item


class MRFSettings(RegressionSettings):
    """Settings of both Markov random fields, dense and sparse; l2 is the lambda of eq. 3."""

    search_space: ClassVar[SearchSpace] = {
        **RegressionSettings.search_space,
        "centred": Choice((True, False)),
        "intercept": Choice((True, False)),
    }
    initial_trials: ClassVar = (
        {"l2": 0.55, "alpha": 0.2, "user_weight_exponent": 0.55, "popularity_discount": 0.45},
        {"l2": 14.0, "alpha": 0.2, "user_weight_exponent": 0.95, "popularity_discount": 0.1},
    )

    centred: bool = Field(
        False,
        description="Subtract the means of the columns before the regression, as the paper does; false, with alpha 0 "
        "and users alike, gives EASE.",
    )
    intercept: bool = Field(
        False,
        description="Score with (x - mu) B + mu instead of the paper's x B, which improves the mean rank of held-out "
        "items if l2 is small.",
    )


class MRFDenseSettings(MRFSettings):
    """The defaults were chosen on validation users of seven logs.

    The paper's and its author's notebook's, for ML-20M and Netflix, are l2 = 6, alpha = .75, centred, users alike.
    """


class MRFDense(ItemWeights[MRFDenseSettings]):
    """Score by item-item regression weights in closed form, the dense Gaussian Markov random field.

    Steck (2019), eq. 3 and 4; without centring, rescaling and user weights it is EASE.

    Attributes:
        weights: float32 (items, items), B of eq. 4, with a zero diagonal; row j is added to the scores of a user who
            likes j.
        offset: float32 (items,), added to every user's scores; mu - mu B with an intercept, else zeros.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import MRFDense
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = MRFDense().fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "mrf_dense"
    Settings = MRFDenseSettings
    is_deterministic = True

    @classmethod
    def estimate_cost(cls, settings: Any, log: LogSize) -> FitCost:
        """Estimate the cost of a fit: of two matrices of all pairs, and the inverse over items, or fewer users."""
        return FitCost(
            BYTES_PER_EDGE * log.edges + 8 * log.items**2 + work_bytes(log.items),
            INVERSE_SECONDS * log.items**2 * min(log.items, log.users),
            depends_on_items=True,
            remedy="take item_knn, sansa or mrf_sparse in its place",
            reads_table=True,
        )

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        started = perf_counter()
        moments = column_moments(interactions, self.params.user_weight_exponent)
        rescaled = rescale_columns(moments, self.params.alpha, self.params.centred, self.params.popularity_discount)
        l2 = self.params.l2
        assert l2 is not None  # by `resolve`
        matrix = regularized_inverse(interactions, moments, rescaled, l2)
        _to_weights(matrix, rescaled)
        self.weights = matrix
        self.offset = np.zeros(len(matrix), dtype=np.float32)
        if self.params.intercept:
            mean = moments.mean * rescaled.back / rescaled.scale
            self.offset[:] = mean - dense_times(moments.mean[None].astype(np.float32), matrix)[0]
        options.on_epoch(Epoch(1, 1, perf_counter() - started))


def _to_weights(inverse: np.ndarray, rescaled: Rescaling) -> None:
    """Eq. 4 in place: from the lower triangle of C, fill all of B_ij = -C_ij / C_jj back_j / scale_i."""
    of_column = (-rescaled.back / inverse.diagonal()).astype(np.float32)
    mirror_lower(inverse)
    inverse *= (1 / rescaled.scale).astype(np.float32)[:, None]
    inverse *= of_column
    np.fill_diagonal(inverse, 0.0)


class EASESettings(ModelSettings):
    """Settings of `mrf_dense` at which it is EASE; l2 is twice the edges' mean degree by default."""

    search_space: ClassVar[SearchSpace] = {"l2": RelativeRange(1 / 16, 16)}
    recency_exponent: ClassVar[float] = 0.0
    alpha: ClassVar[float] = 0.0
    centred: ClassVar[bool] = False
    intercept: ClassVar[bool] = False
    user_weight_exponent: ClassVar[float] = 0.0
    popularity_discount: ClassVar[float] = 0.0

    l2: float | None = Field(
        None, gt=0, description="Ridge penalty lambda. By default twice the mean number of likes of the edges' items."
    )

    def resolve(self, interactions: csr_matrix) -> Self:
        """Derive l2 from the data."""
        return self.model_copy(update={"l2": default_l2(self, interactions, 2.0)})


class EASE(MRFDense):
    """`mrf_dense` without its weights and rescaling (Steck, "Embarrassingly shallow autoencoders", 2019)."""

    name = "ease"
    Settings = EASESettings
