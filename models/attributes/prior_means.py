"""Prior means of factors by attributes: x ~ N(B'g, .) for an item or a user with the features g.

The map B is a point estimate. Given the vectors x it minimizes

    sum_i q_i |x_i - B'g_i|^2 + ridge |B|^2,

a ridge regression on the features with the weights q of the rows' prior terms.

Rows without an edge are represented by a map of their own, fitted to the final vectors with the penalty NEW_ROWS, in
rows, and equal weights. The penalty of the objective is larger: a prior mean that fits the known rows too closely ranks
them worse, while a map that is held back as much predicts new rows too close to zero. NEW_ROWS was chosen on new
items of four logs.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix, diags

NEW_ROWS = 3.0


class PriorMeans:
    """The prior means of the rows of one side, and the map that they come from.

    Attributes:
        features: (rows, F); zero for the rows that are left out of the objective.
        ridge: the weight of |B|^2.
        coefficients: B, float64 (F, K).
        means: float32 (rows, K).
    """

    def __init__(self, features: csr_matrix, used: np.ndarray, weights: np.ndarray, ridge: float, width: int) -> None:
        """Start at a map of zeros.

        Args:
            features: float32 (rows, F).
            used: bool (rows,), the rows in the objective.
            weights: float64 (rows,), q.
            width: K.
        """
        self.features = csr_matrix(diags(used.astype(np.float64)) @ features)
        self.ridge = ridge
        self.coefficients = np.zeros((features.shape[1], width))
        self.means = np.zeros((features.shape[0], width), dtype=np.float32)
        self._weighted = csr_matrix(self.features.T @ diags(weights))
        matrix = (self._weighted @ self.features).toarray()
        matrix.flat[:: len(matrix) + 1] += ridge
        self._factor = cho_factor(matrix, lower=True, overwrite_a=True)

    def fit(self, vectors: np.ndarray) -> None:
        """Set the map to the minimum for these vectors, (rows, K), and the means by it."""
        self.coefficients = cho_solve(self._factor, np.asarray(self._weighted @ vectors.astype(np.float64)))
        self.means = np.asarray(self.features @ self.coefficients, dtype=np.float32)

    def map_new_rows(self, vectors: np.ndarray) -> np.ndarray:
        """Return the map that represents rows without an edge by their features, float32 (F, K).

        Args:
            vectors: (rows, K), final; those of rows without an edge do not count.
        """
        matrix = (self.features.T @ self.features).toarray()
        matrix.flat[:: len(matrix) + 1] += NEW_ROWS
        products = np.asarray(self.features.T @ vectors.astype(np.float64))
        return cho_solve(cho_factor(matrix), products).astype(np.float32)

    def penalty(self) -> float:
        """Return ridge |B|^2."""
        return self.ridge * float(np.square(self.coefficients).sum())
