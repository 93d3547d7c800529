"""Minibatches of natural-gradient steps on a binary matrix; `models.binary_matrix.model` defines the symbols."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix
from scipy.special import logit

from oneclass.models.binary_matrix import kernels
from oneclass.models.binary_matrix.kernels import LANES, POWER, SHARDS, T0, Entries, Grouping, UpdatedSide
from oneclass.models.binary_matrix.sampling import EntrySampler, Strategy
from oneclass.models.fit_options import WARM_START_SKIP, Start, copy_rows
from oneclass.models.numerics.random_numbers import normals, purpose
from oneclass.models.numerics.simd import pad_width
from oneclass.models.settings import ModelSettings, NumericRange, SearchSpace

Z_VARIANCE = 100.0  # prior variance of the global bias
THETA_DELTA = 1.0  # of box 8: how much noise a minibatch may have
LEAST_BATCH, MOST_BATCH = 1000, 10_000_000  # entries in a minibatch; each takes 40 bytes
INITIAL_SCALE = 0.1  # standard deviation of the means before the first pass
NULL_UPDATES, MAX_PRODUCTS = 1000, 60  # of the null solution, and of the power method
NULL_START = purpose("binary matrix stability")
SMOOTHING = 0.2  # weight of the newest minibatch in the running mean of the noise-to-signal ratio


class BinaryMatrixSettings(ModelSettings):
    """Priors and sampling."""

    search_space: ClassVar[SearchSpace] = {
        "factors": NumericRange(10, 100, log=True, manual_only=True),
        "user_variance": NumericRange(0.05, 1.0, log=True),
        "item_variance": NumericRange(0.05, 1.0, log=True),
        "passes": NumericRange(20, 160, log=True, manual_only=True),
    }

    factors: int = Field(20, ge=1, description="K, the poster's D.")
    sampling: Strategy = Field("balanced", description="How entries are drawn: uniform, balanced or biased.")
    user_variance: float = Field(0.2, gt=0, description="Prior variance of u_id.")
    item_variance: float = Field(0.2, gt=0, description="Prior variance of v_jd.")
    passes: int = Field(80, ge=1, description="Number of passes; a pass draws two entries for every one in the matrix.")


@dataclass
class BinaryMatrixPosterior:
    """q(U, V, z), and how many updates it has had.

    Attributes:
        users, items: float32 (vertices, 2 W), in the layout of `models.binary_matrix.kernels`.
        z: float64 (2,), mean and variance.
        user_updates, item_updates: int64 (vertices,), the number of updates of each vertex.
        progress: int64 (2,), the number of minibatches so far, each of which updated z, and the size S of the next.
    """

    users: np.ndarray
    items: np.ndarray
    z: np.ndarray
    user_updates: np.ndarray
    item_updates: np.ndarray
    progress: np.ndarray

    @classmethod
    def start(cls, interactions: csr_matrix, settings: BinaryMatrixSettings, seed: int) -> "BinaryMatrixPosterior":
        """Small random means (u = v = 0 is a fixed point), the variances of the prior, and z at the matrix's
        density.
        """
        (L, M), ones, K = interactions.shape, interactions.nnz, settings.factors
        return cls(
            users=_draw_initial_table(seed, "binary matrix users", L, K, settings.user_variance),
            items=_draw_initial_table(seed, "binary matrix items", M, K, settings.item_variance),
            z=np.array([np.log((ones + 1) / (L * M - ones + 1)), 0.01]),
            user_updates=np.zeros(L, dtype=np.int64),
            item_updates=np.zeros(M, dtype=np.int64),
            progress=np.array([0, min(2 * ones, MOST_BATCH)]),
        )

    @property
    def is_null(self) -> bool:
        """Whether all factors have mean zero, so that every entry has the same logit."""
        return not self.items[:, : self.items.shape[1] // 2].any()

    def vanish(self, factors: int, null: tuple[float, float, float]) -> None:
        """Move to the `find_null_solution`."""
        self.z[0] = null[0]
        for table, variance in zip((self.users, self.items), null[1:], strict=True):
            width = table.shape[1] // 2
            table[:, :width], table[:, width : width + factors] = 0, variance

    def take(self, start: Start) -> None:
        """Copy an earlier fit's vertices and its z, and of its numbers of updates the share that a warm start passes
        by.

        So steps are as large as a whole fit's would be at that point, and do not shrink from night to night.
        """
        previous = start.previous.q
        copy_rows(self.users, previous.users, start.users)
        copy_rows(self.items, previous.items, start.items)
        copy_rows(self.user_updates, WARM_START_SKIP * previous.user_updates, start.users)
        copy_rows(self.item_updates, WARM_START_SKIP * previous.item_updates, start.items)
        self.z[:] = previous.z
        self.progress[:] = WARM_START_SKIP * previous.progress[0], previous.progress[1]

    def divergence(self, settings: BinaryMatrixSettings) -> float:
        """KL[q(U) q(V) q(z) || p]."""
        priors = settings.user_variance, settings.item_variance, Z_VARIANCE
        return float(sum(map(kl_divergence, (self.users, self.items, self.z), priors)))


def find_null_solution(interactions: csr_matrix, settings: BinaryMatrixSettings) -> tuple[float, float, float]:
    """Find z and the variances of the factors of users and items at the stationary point where all have mean zero.

    Every entry then has the same lambda; by boxes 5 and 6, without what the prior of z adds,

        1 / var u = 1 / prior + M 2 lambda var v,    1 / var v = 1 / prior + L 2 lambda var u,
        xi^2 = z^2 + K var u var v,    2 lambda z = density - 1/2.
    """
    (L, M), density = interactions.shape, (interactions.nnz + 1) / (np.prod(interactions.shape) + 2)
    z, user, item = logit(density), settings.user_variance, settings.item_variance
    for _ in range(NULL_UPDATES):
        xi = np.sqrt(z * z + settings.factors * user * item)
        twice_lambda = np.tanh(xi / 2) / (2 * xi)
        user = 1 / (1 / settings.user_variance + M * twice_lambda * item)
        item = 1 / (1 / settings.item_variance + L * twice_lambda * user)
        z = (density - 0.5) / twice_lambda
    return z, user, item


def factors_vanish(interactions: csr_matrix, null: tuple[float, float, float], seed: int) -> bool:
    """Whether small means of the factors vanish, given the `find_null_solution`.

    Close to zero, updates of the means by turns multiply with R var u and R' var v, where R = X less its density. So
    they grow if sigma_1(R)^2 var u var v > 1, and else vanish: where z is far from zero, 2 lambda is far above the
    logistic function's curvature, and few ones cannot move the means against it. sigma_1 is bounded from below by the
    power method, which ends as soon as the bound is above.
    """
    x = csr_matrix((np.ones(interactions.nnz), interactions.indices, interactions.indptr), interactions.shape)
    density, vector = x.nnz / (x.shape[0] * x.shape[1]), normals(seed, NULL_START, x.shape[1], 1)[:, 0].astype(float)
    for _ in range(MAX_PRODUCTS):
        vector /= np.linalg.norm(vector)
        image = x @ vector - density * vector.sum()
        if image @ image * null[1] * null[2] > 1:
            return False
        if not image.any():
            break
        vector = image @ x - density * image.sum()
    return True


def _draw_initial_table(seed: int, side: str, vertices: int, factors: int, variance: float) -> np.ndarray:
    width = int(pad_width(factors, LANES))
    rows = np.zeros((vertices, 2 * width), dtype=np.float32)
    rows[:, :factors] = normals(seed, purpose(side), vertices, factors) * np.float32(INITIAL_SCALE)
    rows[:, width : width + factors] = variance
    return rows


def kl_divergence(table: np.ndarray, prior: float) -> float:
    """KL[q || p] of a table, or of z, where p has this variance."""
    mean, variance = np.split(np.asarray(table, dtype=np.float64), 2, axis=-1)
    mean, variance = mean[variance > 0], variance[variance > 0] / prior
    return 0.5 * (mean**2 / prior + variance - 1 - np.log(variance)).sum()


class Inference:
    """The minibatches of one fit.

    Attributes:
        q: the posterior, updated in place.
        noise: running mean of the noise-to-signal ratio of box 8; NaN before the first minibatch.
    """

    def __init__(
        self, q: BinaryMatrixPosterior, sampler: EntrySampler, settings: BinaryMatrixSettings, seed: int
    ) -> None:
        self.q, self.settings, self.seed, self.noise = q, settings, seed, np.nan
        self.sampler, self._moved = sampler, (q.users.copy(), q.items.copy())

    def run_pass(self, entries: int) -> dict[str, float]:
        """One pass: minibatches that draw `entries` entries in all; returns the values to report."""
        likelihood, left = 0.0, entries
        while left > 0:
            size = int(self.q.progress[1])
            size = left if left < 1.5 * size else size  # so that no small minibatch is left at the end
            likelihood += size * self.minibatch(size)
            left -= size
        batches, size = self.q.progress
        value = float(likelihood / entries) - self.q.divergence(self.settings)
        return {"bound": value, "step_size": self._rho(batches), "minibatch": float(size)}

    def minibatch(self, size: int) -> float:
        """One update from `size` entries; returns an estimate of the likelihood part of the bound before the update."""
        totals = self._update_factors(size)
        self._step_z(totals[kernels.Z_TWICE_LAMBDA] / size, totals[kernels.Z_SLOPE] / size)
        if totals[kernels.NOISE_COUNT]:
            self._resize(totals[kernels.NOISE] / totals[kernels.NOISE_COUNT])
        self.q.progress[0] += 1
        return totals[kernels.LIKELIHOOD] / size

    def _update_factors(self, size: int) -> np.ndarray:
        """Move users and items by the next `size` entries; the sums over these, float64 (5,)."""
        q, settings = self.q, self.settings
        rows, columns, ones, weights = self.sampler.draw(self.seed, int(q.progress[0]), size)
        by_row, by_column = Grouping.of(rows, len(q.users)), Grouping.of(columns, len(q.items))
        means, twice_lambdas = np.empty((2, size), dtype=np.float32)
        sums = np.zeros((SHARDS, 5))
        of_z, of_rows = (Entries(columns, ones, weights[at], means, twice_lambdas) for at in (2, 0))
        of_columns = Entries(rows, ones, weights[1], means, twice_lambdas)
        users, items = (
            UpdatedSide(q.users, self._moved[0], 1 / settings.user_variance, self.sampler.row_p, q.user_updates),
            UpdatedSide(q.items, self._moved[1], 1 / settings.item_variance, self.sampler.column_p, q.item_updates),
        )
        kernels.maximise_xi(by_row, of_z, q.users, q.items, to_float32(q.z), sums)
        kernels.update_vertices(by_row, of_rows, users, q.items, sums)
        kernels.update_vertices(by_column, of_columns, items, q.users, sums)
        for table, moved, grouping in ((q.users, self._moved[0], by_row), (q.items, self._moved[1], by_column)):
            updated = np.diff(grouping.starts) > 0
            table[updated] = moved[updated]
        return sums.sum(axis=0)

    def _step_z(self, twice_lambda: float, slope: float) -> None:
        rho, (mean, variance) = self._rho(self.q.progress[0]), self.q.z
        precision = (1 - rho) / variance + rho * (1 / Z_VARIANCE + twice_lambda)
        self.q.z[:] = ((1 - rho) * mean / variance + rho * slope) / precision, 1 / precision

    def _resize(self, noise: float) -> None:
        """Choose the size of the next minibatch by box 8, with a running mean of the noise-to-signal ratio."""
        self.noise = noise if np.isnan(self.noise) else (1 - SMOOTHING) * self.noise + SMOOTHING * noise
        self.q.progress[1] = min(max(self.noise / THETA_DELTA, LEAST_BATCH), MOST_BATCH)

    def _rho(self, updates: int) -> float:
        return float((T0 + updates) ** -POWER)


def to_float32(z: np.ndarray) -> tuple[np.float32, np.float32]:
    """Mean and variance as the kernels take them."""
    return np.float32(z[0]), np.float32(z[1])
