"""Logistic factorization of a fully observed binary matrix (Hernandez-Lobato, Houlsby and Ghahramani 2014, poster).

    x_ij ~ Bernoulli(sigma(u_i v_j' + z)) for every entry, ones and zeros;  u_id, v_jd, z ~ N(0, prior variance)

q is a product of Gaussians, one a parameter. With Jaakkola and Jordan's sigma(a) >= tau(a, xi), maximised over
xi_ij^2 = E a^2, the bound is (box 3 to 5; its "arg max" over xi is a max)

    L = sum_ij {log sigma(xi) + (x - 1/2) E a - xi / 2} - KL[q(U) q(V) q(z) || p],   a = u_i v_j' + z.

Every minibatch draws entries from p(i, j) and moves the natural parameters of the rows, columns and z that it
touches by rho = (t0 + t)^-power towards the average maximizer of box 6, t counting that parameter's own updates
(Houlsby's thesis, chapter 5). With lambda = tanh(xi/2) / (4 xi), one entry's maximizer for u_id is

    precision  1 / variance + c 2 lambda E[v_jd^2]
    precision x mean  c {(x - 1/2) E v_jd - 2 lambda E v_jd (E a - E u_id E v_jd)},

and v_jd and z mirror it. All of a minibatch's maximizers are taken at the parameters before it. **Scaling
constants**: no single c_ij is unbiased for a row, a column and z at once, so each has its own: p(i)/p(i,j) for
u_i, p(j)/p(i,j) for v_j and 1/p(i,j) for z. The three sampling strategies then share one stationary point, and
differ in the noise.

Box 8 makes the minibatch size proportional to the noise-to-signal ratio. Here S = mean_s
{|eta*_s - eta_i|^2 / (p(i) |eta_i|^2)} / (theta delta): each entry's maximizer eta*_s against the vertex's own
natural parameters eta_i, which are a running mean of maximizers; averaged over entries drawn, rows and columns.
"""

from collections.abc import Callable
from time import perf_counter
from typing import ClassVar, Self

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from models import binary_matrix_kernels as kernels
from models.base import Epoch, Model, ModelSettings
from models.binary_matrix_sampling import EntrySampler, Strategy
from models.products import dense_times
from models.random_numbers import normals, purpose
from models.threads import kernel_threads

SMOOTHING = 0.2  # weight of the newest minibatch in the running noise-to-signal ratio


class BinaryMatrixSettings(ModelSettings):
    """Priors, sampling, steps and minibatches."""

    factors: int = Field(20, ge=1, description="K, the poster's D")
    sampling: Strategy = Field("balanced", description="how entries are drawn: uniform, balanced or biased")
    user_variance: float = Field(0.2, gt=0, description="prior variance of u_id")
    item_variance: float = Field(0.2, gt=0, description="prior variance of v_jd")
    z_variance: float = Field(100.0, gt=0, description="prior variance of the global bias")
    passes: int = Field(80, ge=1, description="passes; each draws two entries for every one of the matrix")
    t0: float = Field(30.0, ge=1, description="t0 of the step size (t0 + t)^-power")
    power: float = Field(0.7, gt=0.5, le=1, description="power of the step size")
    theta_delta: float = Field(1.0, gt=0, description="theta delta of box 8: the noise that a minibatch may have")
    least_batch: int = Field(1000, ge=1, description="entries of a minibatch at least")
    start_scale: float = Field(0.1, gt=0, description="standard deviation of the means that the fit starts from")
    fold_in_iterations: int = Field(30, ge=1, description="updates of an unseen user at most")
    fold_in_tolerance: float = Field(1e-3, ge=0, description="stop when no mean of an unseen user changes by more "
                                     "than this share of the largest")


class BinaryMatrix(Model):
    """Logistic factorization of the whole binary matrix; scores are log-odds of a one, E u_i E v_j' + E z.

    Attributes:
        users, items: float32 (vertices, 2 W), means and variances as `models.binary_matrix_kernels` packs them.
        z: float64 (2,), mean and variance of the global bias.
        bounds: float64 (passes,), the bound as each pass's entries estimate it.
    """

    name: ClassVar[str] = "binary_matrix"
    Settings: ClassVar[type[ModelSettings]] = BinaryMatrixSettings

    _previous: tuple[Self, np.ndarray, np.ndarray] | None = None

    def begin_from(self, previous: Self, users: np.ndarray, items: np.ndarray) -> Self:
        """Let the next `fit` begin at an earlier posterior.

        Args:
            previous: a fitted model with as many factors.
            users, items: for each row and column of the next matrix, that of `previous`, -1 where it is new.

        Raises:
            ValueError: another number of factors.
        """
        if previous.settings.factors != self.settings.factors:
            raise ValueError(f"factors: {self.settings.factors} here, {previous.settings.factors} in the fit to "
                             "begin from; make them equal or begin afresh")
        self._previous = previous, users, items
        return self

    def _fit(self, interactions: csr_matrix, on_epoch: Callable[[Epoch], None]) -> None:
        settings = self.settings
        with kernel_threads(self.threads):
            q = Posterior(interactions, settings, self.seed)
            if self._previous is not None:
                previous, users, items = self._previous
                q.users[users >= 0] = previous.users[users[users >= 0]]
                q.items[items >= 0] = previous.items[items[items >= 0]]
                q.z[:], self._previous = previous.z, None
            bounds = []
            for number in range(1, settings.passes + 1):
                started = perf_counter()
                values = q.pass_over(2 * interactions.nnz)
                bounds.append(values["bound"])
                on_epoch(Epoch(number, settings.passes, perf_counter() - started, values))
        self.users, self.items, self.z, self.bounds = q.users, q.items, q.z, np.array(bounds)

    def bound(self, interactions: csr_matrix) -> float:
        """The bound itself, over every entry of the matrix that the model was fitted on."""
        with kernel_threads(self.threads):
            return bound(interactions, self.users, self.items, self.z, self.settings)

    def fold_in(self, histories: csr_matrix) -> np.ndarray:
        """q(u_i) of users never seen, with items and z held: float32 (users, 2 W), packed like `users`."""
        histories, settings = self._known(histories), self.settings
        users = np.empty((histories.shape[0], self.items.shape[1]), dtype=np.float32)
        with kernel_threads(self.threads):
            kernels.fold_in(histories.indptr.astype(np.int64), histories.indices.astype(np.int32), self.items,
                            settings.factors, np.float32(self.z[0]), np.float32(self.z[1]),
                            1 / settings.user_variance, settings.fold_in_iterations, settings.fold_in_tolerance, users)
        return users

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        table, K = self.fold_in(histories) if users is None else self.users[users], self.settings.factors
        with kernel_threads(self.threads):
            scores = dense_times(table[:, :K], np.ascontiguousarray(self.items[:, :K].T))
        scores += np.float32(self.z[0])
        return scores

    def _arrays(self) -> dict[str, np.ndarray]:
        return {"users": self.users, "items": self.items, "z": self.z, "bounds": self.bounds}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        super()._restore(arrays)
        self.items = np.array(self.items)  # the kernels are compiled for writable arrays


class Posterior:
    """The state of one fit: q, how often each part was updated, and the minibatch size.

    Attributes:
        users, items, z: as in `BinaryMatrix`.
        size: S, entries of the next minibatch.
    """

    def __init__(self, interactions: csr_matrix, settings: BinaryMatrixSettings, seed: int) -> None:
        L, M = interactions.shape
        self.settings, self.seed = settings, seed
        self.sampler = EntrySampler.of(interactions, settings.sampling)
        self.users = _start(seed, "binary matrix users", L, settings, settings.user_variance)
        self.items = _start(seed, "binary matrix items", M, settings, settings.item_variance)
        odds = (interactions.nnz + 1) / (L * M - interactions.nnz + 1)
        self.z = np.array([np.log(odds), 0.01])
        self.updates = np.zeros(L, dtype=np.int64), np.zeros(M, dtype=np.int64)
        self.batches = 0
        self.most = 2 * interactions.nnz
        self.size, self.noise = self.most, np.nan
        self._next_users, self._next_items = self.users.copy(), self.items.copy()

    def pass_over(self, entries: int) -> dict[str, float]:
        """Minibatches that draw so many entries in all; what to watch."""
        likelihood, left = 0.0, entries
        while left > 0:
            size = left if left < 1.5 * self.size else self.size  # no small rest
            likelihood += size * self.minibatch(size)
            left -= size
        value = likelihood / entries - divergence(self.users, self.items, self.z, self.settings)
        return {"bound": value, "step_size": self._rho(self.batches), "batch": self.size}

    def minibatch(self, size: int) -> float:
        """One update from so many entries; the likelihood's part of the bound before it, as they estimate it."""
        settings = self.settings
        rows, columns, ones, weights = self.sampler.draw(self.seed, self.batches, size)
        means, curvatures = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32)
        sums, schedule = np.zeros((kernels.SHARDS, 5)), (settings.t0, settings.power)
        by_row, by_column = kernels.group(rows, len(self.users)), kernels.group(columns, len(self.items))
        z = np.float32(self.z[0]), np.float32(self.z[1])
        kernels.bound_xi(*by_row, columns, ones, weights, self.users, self.items, *z, means, curvatures, sums)
        kernels.step(*by_row, columns, ones, np.ascontiguousarray(weights[:, 0]), self.users, self.items,
                     1 / settings.user_variance, self.sampler.row_p, self.updates[0], schedule, means, curvatures,
                     self._next_users, sums)
        kernels.step(*by_column, rows, ones, np.ascontiguousarray(weights[:, 1]), self.items, self.users,
                     1 / settings.item_variance, self.sampler.column_p, self.updates[1], schedule, means, curvatures,
                     self._next_items, sums)
        kernels.copy_rows(by_row[0], self._next_users, self.users)
        kernels.copy_rows(by_column[0], self._next_items, self.items)
        totals = sums.sum(axis=0)
        self._step_z(totals[kernels.Z_CURVATURE] / size, totals[kernels.Z_SLOPE] / size)
        self._resize(totals[kernels.NOISE] / max(totals[kernels.NOISE_COUNT], 1))
        self.batches += 1
        return totals[kernels.LIKELIHOOD] / size

    def _step_z(self, curvature: float, slope: float) -> None:
        rho, (mean, variance) = self._rho(self.batches), self.z
        precision = (1 - rho) / variance + rho * (1 / self.settings.z_variance + curvature)
        self.z[:] = ((1 - rho) * mean / variance + rho * slope) / precision, 1 / precision

    def _resize(self, noise: float) -> None:
        """Box 8, with a running mean of the noise-to-signal ratio."""
        self.noise = noise if np.isnan(self.noise) else (1 - SMOOTHING) * self.noise + SMOOTHING * noise
        size = self.noise / self.settings.theta_delta
        self.size = int(min(max(size, self.settings.least_batch), self.most))

    def _rho(self, updates: int) -> float:
        return (self.settings.t0 + updates) ** -self.settings.power


def bound(interactions: csr_matrix, users: np.ndarray, items: np.ndarray, z: np.ndarray,
          settings: BinaryMatrixSettings) -> float:
    """L over every entry of the matrix, O(users x items x K)."""
    likelihood = kernels.log_likelihood_bound(interactions.indptr.astype(np.int64),
                                              interactions.indices.astype(np.int32), users, items, np.float32(z[0]),
                                              np.float32(z[1])).sum()
    return float(likelihood - divergence(users, items, z, settings))


def divergence(users: np.ndarray, items: np.ndarray, z: np.ndarray, settings: BinaryMatrixSettings) -> float:
    """KL[q(U) q(V) q(z) || p]."""
    total = 0.0
    for table, prior in ((users, settings.user_variance), (items, settings.item_variance), (z, settings.z_variance)):
        mean, variance = np.split(np.asarray(table, dtype=np.float64), 2, axis=-1)
        mean, variance = mean[variance > 0], variance[variance > 0] / prior
        total += 0.5 * (mean**2 / prior + variance - 1 - np.log(variance)).sum()
    return float(total)


def _start(seed: int, side: str, vertices: int, settings: BinaryMatrixSettings, variance: float) -> np.ndarray:
    """Small random means, since u = v = 0 is a fixed point, and the prior's variances."""
    K = settings.factors
    width = -(-K // kernels.LANES) * kernels.LANES
    table = np.zeros((vertices, 2 * width), dtype=np.float32)
    table[:, :K] = normals(seed, purpose(side), vertices, K) * np.float32(settings.start_scale)
    table[:, width : width + K] = variance
    return table
