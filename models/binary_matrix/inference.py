"""Minibatches of natural-gradient steps on a binary matrix; `models.binary_matrix.model` defines the symbols."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from models.binary_matrix import kernels
from models.binary_matrix.minibatch import SHARDS, Entries, Moving, grouping
from models.binary_matrix.sampling import EntrySampler, Strategy
from models.fitting import PASSED_BY, Start, take
from models.numerics.adjacency import adjacency
from models.numerics.lanes import padded
from models.numerics.random_numbers import normals, purpose
from models.search_space import SearchSpace, Span
from models.settings import ModelSettings

SMOOTHING = 0.2  # weight of the newest minibatch in the running mean of the noise-to-signal ratio


class BinaryMatrixSettings(ModelSettings):
    """Priors, sampling, step sizes and minibatches."""

    search_space: ClassVar[SearchSpace] = {
        "factors": Span(10, 100, log=True, by_hand=True),
        "user_variance": Span(0.05, 1.0, log=True),
        "item_variance": Span(0.05, 1.0, log=True),
        "passes": Span(20, 160, log=True, by_hand=True),
    }

    factors: int = Field(20, ge=1, description="K, the poster's D.")
    sampling: Strategy = Field("balanced", description="How entries are drawn: uniform, balanced or biased.")
    user_variance: float = Field(0.2, gt=0, description="Prior variance of u_id.")
    item_variance: float = Field(0.2, gt=0, description="Prior variance of v_jd.")
    z_variance: float = Field(100.0, gt=0, description="Prior variance of the global bias.")
    passes: int = Field(80, ge=1, description="Number of passes; a pass draws two entries for every one in the matrix.")
    t0: float = Field(
        30.0,
        ge=1,
        description="t0 of the step size (t0 + t)^-power; if it is small, the first steps, which are taken in "
        "all K directions at once, may diverge.",
    )
    power: float = Field(0.7, gt=0.5, le=1, description="Power of the step size.")
    theta_delta: float = Field(1.0, gt=0, description="Theta delta of box 8: how much noise a minibatch may have.")
    least_batch: int = Field(1000, ge=1, description="Least number of entries in a minibatch.")
    most_batch: int = Field(
        10_000_000, ge=1, description="Largest number of entries in a minibatch; each takes 40 bytes."
    )
    start_scale: float = Field(0.1, gt=0, description="Standard deviation of the means before the first pass.")
    fold_in_iterations: int = Field(30, ge=1, description="Largest number of updates of an unseen user.")
    fold_in_tolerance: float = Field(
        1e-3, ge=0, description="Stop when no mean of an unseen user changes by more than this share of the largest."
    )


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
        """Small random means (u = v = 0 is a fixed point), the variances of the prior, and z at the matrix's density."""
        (L, M), ones = interactions.shape, interactions.nnz
        return cls(
            users=_table(seed, "binary matrix users", L, settings, settings.user_variance),
            items=_table(seed, "binary matrix items", M, settings, settings.item_variance),
            z=np.array([np.log((ones + 1) / (L * M - ones + 1)), 0.01]),
            user_updates=np.zeros(L, dtype=np.int64),
            item_updates=np.zeros(M, dtype=np.int64),
            progress=np.array([0, min(2 * ones, settings.most_batch)]),
        )

    def take(self, start: Start) -> None:
        """Copy an earlier fit's vertices, its z, and of the numbers of updates so far the share that is passed by.

        So steps are as large as where a whole fit would be by then, and grow no smaller from night to night.
        """
        previous = start.previous.q
        take(self.users, previous.users, start.users)
        take(self.items, previous.items, start.items)
        take(self.user_updates, PASSED_BY * previous.user_updates, start.users)
        take(self.item_updates, PASSED_BY * previous.item_updates, start.items)
        self.z[:] = previous.z
        self.progress[:] = PASSED_BY * previous.progress[0], previous.progress[1]

    def divergence(self, settings: BinaryMatrixSettings) -> float:
        """KL[q(U) q(V) q(z) || p]."""
        total = 0.0
        for table, prior in (
            (self.users, settings.user_variance),
            (self.items, settings.item_variance),
            (self.z, settings.z_variance),
        ):
            mean, variance = np.split(np.asarray(table, dtype=np.float64), 2, axis=-1)
            mean, variance = mean[variance > 0], variance[variance > 0] / prior
            total += 0.5 * (mean**2 / prior + variance - 1 - np.log(variance)).sum()
        return float(total)

    def bound(self, interactions: csr_matrix, settings: BinaryMatrixSettings) -> float:
        """L, from every entry of the matrix, in O(users x items x K)."""
        rows = kernels.log_likelihood_bound(*adjacency(interactions), self.users, self.items, float32_pair(self.z))
        return float(rows.sum()) - self.divergence(settings)


@dataclass
class Inference:
    """The minibatches of one fit.

    Attributes:
        q: the posterior, updated in place.
        noise: running mean of the noise-to-signal ratio of box 8; NaN before the first minibatch.
    """

    q: BinaryMatrixPosterior
    sampler: EntrySampler
    settings: BinaryMatrixSettings
    seed: int
    noise: float = field(default=np.nan, init=False)

    def __post_init__(self) -> None:
        self._moved = self.q.users.copy(), self.q.items.copy()

    def pass_over(self, entries: int) -> dict[str, float]:
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
        q, settings, schedule = self.q, self.settings, (self.settings.t0, self.settings.power)
        rows, columns, ones, weights = self.sampler.draw(self.seed, int(q.progress[0]), size)
        by_row, by_column = grouping(rows, len(q.users)), grouping(columns, len(q.items))
        means, twice_lambdas = np.empty((2, size), dtype=np.float32)
        sums = np.zeros((SHARDS, 5))
        of_z, of_rows = (Entries(columns, ones, weights[at], means, twice_lambdas) for at in (2, 0))
        of_columns = Entries(rows, ones, weights[1], means, twice_lambdas)
        users, items = (
            Moving(q.users, self._moved[0], 1 / settings.user_variance, self.sampler.row_p, q.user_updates),
            Moving(q.items, self._moved[1], 1 / settings.item_variance, self.sampler.column_p, q.item_updates),
        )
        kernels.maximise_xi(by_row, of_z, q.users, q.items, float32_pair(q.z), sums)
        kernels.step(by_row, of_rows, users, q.items, schedule, sums)
        kernels.step(by_column, of_columns, items, q.users, schedule, sums)
        kernels.copy_rows(by_row.starts, self._moved[0], q.users)
        kernels.copy_rows(by_column.starts, self._moved[1], q.items)
        totals = sums.sum(axis=0)
        self._step_z(totals[kernels.Z_TWICE_LAMBDA] / size, totals[kernels.Z_SLOPE] / size)
        if totals[kernels.NOISE_COUNT]:
            self._resize(totals[kernels.NOISE] / totals[kernels.NOISE_COUNT])
        q.progress[0] += 1
        return totals[kernels.LIKELIHOOD] / size

    def _step_z(self, twice_lambda: float, slope: float) -> None:
        rho, (mean, variance) = self._rho(self.q.progress[0]), self.q.z
        precision = (1 - rho) / variance + rho * (1 / self.settings.z_variance + twice_lambda)
        self.q.z[:] = ((1 - rho) * mean / variance + rho * slope) / precision, 1 / precision

    def _resize(self, noise: float) -> None:
        """Choose the size of the next minibatch by box 8, with a running mean of the noise-to-signal ratio."""
        self.noise = noise if np.isnan(self.noise) else (1 - SMOOTHING) * self.noise + SMOOTHING * noise
        size = self.noise / self.settings.theta_delta
        self.q.progress[1] = min(max(size, self.settings.least_batch), self.settings.most_batch)

    def _rho(self, updates: int) -> float:
        return float((self.settings.t0 + updates) ** -self.settings.power)


def float32_pair(z: np.ndarray) -> tuple[np.float32, np.float32]:
    """Mean and variance as the kernels take them."""
    return np.float32(z[0]), np.float32(z[1])


def _table(seed: int, side: str, vertices: int, settings: BinaryMatrixSettings, variance: float) -> np.ndarray:
    K = settings.factors
    width = int(padded(K, kernels.LANES))
    table = np.zeros((vertices, 2 * width), dtype=np.float32)
    table[:, :K] = normals(seed, purpose(side), vertices, K) * np.float32(settings.start_scale)
    table[:, width : width + K] = variance
    return table
