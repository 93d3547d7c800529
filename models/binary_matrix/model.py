"""Logistic factorization of a fully observed binary matrix (Hernandez-Lobato, Houlsby, Ghahramani, poster).

    x_ij ~ Bernoulli(sigma(u_i v_j' + z)) for every entry, 1 or 0;  u_id, v_jd, z ~ N(0, prior variance)

q is a product of Gaussians, one for each parameter. With Jaakkola and Jordan's sigma(a) >= tau(a, xi), whose best xi
is xi_ij^2 = E a^2, the bound is (boxes 3 to 5; the "arg max" over Xi in box 5 should be a max)

    L = sum_ij {log sigma(xi) + (x - 1/2) E a - xi / 2} - KL[q(U) q(V) q(z) || p],   a = u_i v_j' + z.

Every minibatch draws entries from p(i, j). It moves the natural parameters of their rows and columns, and of z, by
rho = (t0 + t)^-0.7 towards the average maximizer of box 6, where t counts the updates of that parameter (Houlsby's
thesis, chapter 5). With lambda = tanh(xi/2) / (4 xi), the maximizer of one entry for u_id has

    precision         1 / variance + c 2 lambda E[v_jd^2]
    precision x mean  c {(x - 1/2) E v_jd - 2 lambda E v_jd (E a - E u_id E v_jd)};

Those of v_jd and z are analogous. All maximizers of a minibatch are computed from the parameters before it.

**Scaling constants**: no single c_ij makes the estimates for a row, a column and z all unbiased, so each has its own:
p(i)/p(i,j) for u_i, p(j)/p(i,j) for v_j, 1/p(i,j) for z. If every entry can be drawn, all three sampling strategies
then have the same stationary points, and differ only in their noise. S-Biased never draws the zeros of an empty row or
column.

**Minibatch size**: box 8 uses the ratio of noise to signal. Here S = mean_s {|eta*_s - eta_i|^2 / (p(i) |eta_i|^2)}
/ (theta delta), where eta*_s is the maximizer of entry s, and eta_i are the natural parameters of its vertex, a running
mean of maximizers. The mean is over the drawn entries, each with its row and with its column.

**Very sparse matrices**: with tens of thousands of items and ten likes of each, all factors vanish where the bound is
largest (`models.binary_matrix.inference.factors_vanish`). Such a fit ends before its first pass and ranks by
popularity.
"""

import warnings
from functools import cache
from time import perf_counter
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.binary_matrix.fold_in import fold_in, transpose_table
from oneclass.models.binary_matrix.inference import (
    BinaryMatrixPosterior,
    BinaryMatrixSettings,
    Inference,
    factors_vanish,
    find_null_solution,
    to_float32,
)
from oneclass.models.binary_matrix.kernels import SHARDS
from oneclass.models.binary_matrix.sampling import EntrySampler
from oneclass.models.fit_options import Epoch, FitOptions, sampling_seed, skipped_epochs
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.negatives.distributions import AllZeros
from oneclass.models.negatives.like_probability import pair_likes
from oneclass.models.numerics.adjacency import copy_pattern, partition_evenly
from oneclass.models.numerics.logistic_bound import GaussianFactors
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.settings import ModelSettings

FOLD_IN_STEPS = 30  # of Newton's method, at most
FOLD_IN_TOLERANCE = 1e-3  # it ends where no mean changes by more than this share of the largest


@cache
def _warn_of_null(users: int, items: int, likes: int) -> None:
    """Warn once of a matrix, not at every trial of a search."""
    warnings.warn(
        f"binary_matrix: {likes:,} likes by {users:,} users of {items:,} items say too little of them, and all factors "
        "vanish; items are ranked by popularity. Choose another model for this log",
        stacklevel=4,
    )


class BinaryMatrix(Model[BinaryMatrixSettings]):
    """Logistic factorization of the whole binary matrix, by stochastic variational Bayes on minibatches of entries.

    Hernandez-Lobato, Houlsby and Ghahramani (poster, boxes 3 to 10); scores are log-odds of a one, E u_i E v_j' + E z.

    Attributes:
        q: the posterior: means and variances of `users` (users, 2 W), `items` (items, 2 W) and `z` (2,).
        bounds: float64 (passes,), the bound, estimated from the entries of each pass; empty if all factors vanish.
        minibatches: float64 (passes,), S, the number of entries in the minibatch after each pass.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import BinaryMatrix
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = BinaryMatrix(factors=4).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name: ClassVar[str] = "binary_matrix"
    Settings: ClassVar[type[ModelSettings]] = BinaryMatrixSettings

    is_iterative = True

    @classmethod
    def estimate_cost(cls, settings: BinaryMatrixSettings, log: LogSize) -> FitCost:
        """Estimate what a fit on a log of this size takes."""
        return FitCost.of_factors(log, settings.factors, 1.6e-4)

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        settings, entries = self.params, 2 * interactions.nnz
        q = BinaryMatrixPosterior.start(interactions, settings, self.seed)
        if factors_vanish(interactions, null := find_null_solution(interactions, settings), self.seed):
            q.vanish(settings.factors, null)
            self.q, self.bounds, self.minibatches = q, np.zeros(0), np.zeros(0)
            _warn_of_null(*interactions.shape, interactions.nnz)
            return
        # an earlier fit whose factors vanished is a stationary point that no pass would leave
        start = None if options.start is None or options.start.previous.q.is_null else options.start
        seed = sampling_seed(self.seed, interactions, start)
        if start:
            q.take(start)  # before `self.q` is replaced: the start may be this model's own last fit
        self.q = q
        inference = Inference(q, EntrySampler.of(interactions, settings.sampling), settings, seed)
        bounds, minibatches = [], []
        for number in range(skipped_epochs(settings.passes, start) + 1, settings.passes + 1):
            started = perf_counter()
            values = inference.run_pass(entries)
            bounds.append(values["bound"])
            minibatches.append(values["minibatch"])
            options.on_epoch(Epoch(number, settings.passes, perf_counter() - started, values))
        self.bounds, self.minibatches = np.array(bounds), np.array(minibatches)

    def _fold_in(self, histories: csr_matrix) -> np.ndarray:
        """Find q(u_i) of users who were not in training, with fixed items and z: float32 (users, 2 W), like
        `q.users`.
        """
        settings = self.params
        users = np.zeros((histories.shape[0], self.q.items.shape[1]), dtype=np.float32)
        if self._is_null:
            users[:, users.shape[1] // 2 :] = self.q.users[0, users.shape[1] // 2 :]
            return users
        fold_in(
            *copy_pattern(histories),
            self.compute_once("items by factor", lambda: transpose_table(self.q.items, settings.factors)),
            settings.factors,
            to_float32(self.q.z),
            1 / settings.user_variance,
            (FOLD_IN_STEPS, FOLD_IN_TOLERANCE),
            partition_evenly(len(users), SHARDS),
            users,
        )
        return users

    def _like(
        self, histories: csr_matrix, *, users: np.ndarray | None = None, items: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability that x_ij is one, and its uncertainty (`Model.like`).

        Both are those of the Gaussian with the first two moments of the logit.
        """
        z_mean, z_variance = self.q.z
        side = self._side(self._user_table(histories, users), z_mean, 1 / z_variance)
        columns = self.compute_once("side", lambda: self._side(self.q.items, 0, np.inf))
        return pair_likes(side, columns, items)

    def item_vectors(self) -> np.ndarray:
        """Return the means of the items' factors."""
        return self.q.items[:, : self.params.factors]

    def negative_distribution(self) -> AllZeros:
        """Return the distribution of all zeros: the bound is that of the whole matrix, however entries are drawn."""
        return AllZeros()

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        if self._is_null:
            return np.tile(self._fill_cold_columns(self.item_degrees.astype(np.float32)), (histories.shape[0], 1))
        K, table = self.params.factors, self._user_table(histories, users)
        scores = dense_times(
            table[:, :K], self.compute_once("columns", lambda: np.ascontiguousarray(self.q.items[:, :K].T))
        )
        scores += np.float32(self.q.z[0])
        return scores

    @property
    def _is_null(self) -> bool:
        return self.compute_once("null", lambda: self.q.is_null)

    def _user_table(self, histories: csr_matrix, users: np.ndarray | None) -> np.ndarray:
        return self.fold_in(histories) if users is None else self.q.users[users]

    def _side(self, table: np.ndarray, bias: float, bias_precision: float) -> GaussianFactors:
        K, width = self.params.factors, table.shape[1] // 2
        mean, precision = np.ascontiguousarray(table[:, :K]), 1 / table[:, width : width + K]
        biases = (np.full(len(table), value, dtype=np.float32) for value in (bias, bias_precision))
        return GaussianFactors(mean, precision, *biases)

    def _arrays(self) -> dict[str, np.ndarray]:
        return {**vars(self.q), "bounds": self.bounds, "minibatches": self.minibatches}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.bounds, self.minibatches = arrays.pop("bounds"), arrays.pop("minibatches")
        self.q = BinaryMatrixPosterior(**arrays)
        self.q.items = np.array(self.q.items)  # the kernels are compiled for writable arrays
