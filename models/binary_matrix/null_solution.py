"""The stationary point of the bound at which no factor says anything, and whether a fit ends there.

With E u = E v = 0 every entry has the same xi and lambda, and the bound is stationary if (boxes 5 and 6)

    1 / var u = 1 / prior + M 2 lambda var v,    1 / var v = 1 / prior + L 2 lambda var u
    xi^2 = (E z)^2 + var z + K var u var v,      E z (1 / prior + L M 2 lambda) = sum_ij (x_ij - 1/2).

Close to it, updates of the means by turns are multiplications with R / precision and R' / precision, where
R = X - 1/2 - 2 lambda E z. They grow if the largest singular value of R has

    gain = sigma_1(R)^2 / (1 / var u x 1 / var v) > 1,

and else vanish. Where z is far from zero, Jaakkola's 2 lambda is far above the logistic function's curvature sigma'(z),
and few ones cannot move the means against it. By the equations above the product of the precisions is at least
max(L, M) 2 lambda, whatever the priors: some 10^4 for 160,000 items, where sigma_1^2 is 10^3 at 11 likes a user.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import csr_matrix

from oneclass.models.binary_matrix.inference import Z_VARIANCE, BinaryMatrixPosterior, BinaryMatrixSettings
from oneclass.models.numerics.random_numbers import normals, purpose

MAX_UPDATES = 100  # of lambda and the variances by turns; a few suffice
TOLERANCE = 1e-10  # of their relative change
MAX_PRODUCTS = 60  # pairs of products with R and R' that bound its largest singular value from below


@dataclass(frozen=True)
class NullSolution:
    """The variances of q where all factors have mean zero.

    Attributes:
        user_variance, item_variance: of every factor.
        z: mean and variance.
        residual: (x - 1/2) - 2 lambda E z of a zero of the matrix; that of a one is larger by 1.
    """

    user_variance: float
    item_variance: float
    z: tuple[float, float]
    residual: float

    @classmethod
    def of(cls, shape: tuple[int, int], ones: int, settings: BinaryMatrixSettings) -> "NullSolution":
        """Solve the equations for a (L, M) matrix with this number of ones."""
        (L, M), mean_x = shape, ones / (shape[0] * shape[1]) - 0.5
        z_precision = 1 / Z_VARIANCE / (L * M)
        z, twice_lambda, z_variance = 0.0, 0.25, 0.0
        user, item = settings.user_variance, settings.item_variance
        for _ in range(MAX_UPDATES):
            before = twice_lambda
            user = 1 / _user_precision((L, M), twice_lambda, settings)
            item = 1 / (1 / settings.item_variance + L * twice_lambda * user)
            z_variance = 1 / (L * M * (z_precision + twice_lambda))
            spread = z_variance + settings.factors * user * item

            def excess(z: float, spread: float = spread) -> float:
                return z * (z_precision + _twice_lambda(np.sqrt(z * z + spread))) - mean_x

            z = brentq(excess, -1 / z_precision, 1 / z_precision, xtol=1e-12, rtol=1e-12)
            twice_lambda = _twice_lambda(np.sqrt(z * z + spread))
            if abs(twice_lambda - before) <= TOLERANCE * before:
                break
        return cls(user, item, (float(z), float(z_variance)), float(-0.5 - twice_lambda * z))

    def write_to(self, q: BinaryMatrixPosterior, factors: int) -> None:
        """Move a posterior to this stationary point."""
        for table, variance in ((q.users, self.user_variance), (q.items, self.item_variance)):
            width = table.shape[1] // 2
            table[:, :width], table[:, width : width + factors] = 0, variance
        q.z[:] = self.z

    def is_stable(self, interactions: csr_matrix, seed: int) -> bool:
        """Return whether small means vanish: whether sigma_1(R)^2 is at most the product of the precisions.

        sigma_1 is bounded from below by the power method, which ends as soon as the bound is above.
        """
        most = 1 / (self.user_variance * self.item_variance)
        pattern = csr_matrix((np.ones(interactions.nnz), interactions.indices, interactions.indptr), interactions.shape)
        transposed = pattern.T.tocsr()
        vector = normals(seed, purpose("binary matrix stability"), interactions.shape[1], 1)[:, 0].astype(np.float64)
        for _ in range(MAX_PRODUCTS):
            vector /= np.linalg.norm(vector)
            image = pattern @ vector + self.residual * vector.sum()
            if image @ image > most:
                return False
            if not image.any():
                break
            vector = transposed @ image + self.residual * image.sum()
        return True


def _user_precision(shape: tuple[int, int], twice_lambda: float, settings: BinaryMatrixSettings) -> float:
    """Return 1 / var u, with that of v eliminated: the positive root of b p^2 + ((L - M) lambda - a b) p - a L lambda,
    where lambda is twice the poster's, and a and b are the prior precisions of u and v.
    """
    L, M = shape
    a, b = 1 / settings.user_variance, 1 / settings.item_variance
    linear, constant = (L - M) * twice_lambda - a * b, a * L * twice_lambda
    root = np.sqrt(linear * linear + 4 * b * constant)
    # of the two forms of the root, the one that subtracts no nearly equal numbers
    return float((root - linear) / (2 * b) if linear < 0 else 2 * constant / (root + linear))


def _twice_lambda(xi: float) -> float:
    return float(np.tanh(xi / 2) / (2 * xi)) if xi > 1e-6 else 0.25
