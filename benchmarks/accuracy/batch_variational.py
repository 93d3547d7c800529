"""Compare stochastic with batch variational inference of `binary_matrix`: the bound, S and CPU time as both progress.

    python -m benchmarks.accuracy.batch_variational --dataset ml-100k --source u.data

Batch inference maximizes the same bound by coordinate ascent: a sweep visits every entry of the matrix, zeros included,
for each factor of the users, each of the items, z and xi in turn. It starts from the same posterior as the stochastic
fit. S is the mean rank under leave_one_out, the bound that of all entries. CPU seconds are of all threads, without
compiling and evaluation; the batch updates are NumPy's matrix products.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.accuracy.bayesian_models import build_splits, print_table
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import resolve_settings
from oneclass.models.binary_matrix.inference import BinaryMatrixPosterior
from oneclass.models.binary_matrix.model import BinaryMatrix
from oneclass.models.binary_matrix.settings import BinaryMatrixSettings
from oneclass.models.evaluation import metrics
from oneclass.tasks.evaluate import rank_part_targets
from oneclass.tasks.stores.matrices import SplitMatrices

SHOWN_PASSES = (1, 2, 5, 10, 20, 40, 80)
STRATEGIES = ("uniform", "balanced", "biased")
PROTOCOL = "leave_one_out"


class BatchInference:
    """Coordinate ascent of the bound over every entry of a binary matrix.

    Args:
        interactions: (L, M) CSR of ones.

    Attributes:
        u, v: float32 (L, K) and (M, K), means.
        u_variance, v_variance: of the same shapes.
        z: float64 (2,), mean and variance.
    """

    def __init__(self, interactions: csr_matrix, settings: BinaryMatrixSettings, seed: int) -> None:
        start = BinaryMatrixPosterior.start(interactions, settings, seed)
        self.settings, self._start = settings, start
        self._signs = np.full(interactions.shape, -0.5, dtype=np.float32)  # x - 1/2
        self._signs[interactions.nonzero()] = 0.5
        K, width = settings.factors, start.users.shape[1] // 2
        self.u, self.v = (table[:, :K].copy() for table in (start.users, start.items))
        self.u_variance, self.v_variance = (table[:, width : width + K].copy() for table in (start.users, start.items))
        self.z = start.z.copy()

    def sweep(self) -> None:
        """Maximize the bound over xi and z, over each factor of the users, over xi again, and over the items'."""
        twice_lambda = self._twice_lambda()
        slope = self._signs - twice_lambda * (self.u @ self.v.T)
        precision = 1 / self.settings.z_variance + float(twice_lambda.sum(dtype=np.float64))
        self.z[:] = float(slope.sum(dtype=np.float64)) / precision, 1 / precision
        users, items = (self.u, self.u_variance), (self.v, self.v_variance)
        _maximize_factors(users, items, self._signs, self._twice_lambda(), self.z[0], self.settings.user_variance)
        _maximize_factors(items, users, self._signs.T, self._twice_lambda().T, self.z[0], self.settings.item_variance)

    def _twice_lambda(self) -> np.ndarray:
        """Return 2 lambda(xi) at the best xi of every entry, xi^2 = E a^2, float32 (L, M)."""
        mean = self.u @ self.v.T + np.float32(self.z[0])
        second = (self.u**2 + self.u_variance) @ (self.v**2 + self.v_variance).T - (self.u**2) @ (self.v**2).T
        xi = np.sqrt(mean**2 + second + np.float32(self.z[1]))
        return np.tanh(xi / 2) / (2 * xi)

    def posterior(self) -> BinaryMatrixPosterior:
        """Return q in the layout of the model."""
        start, K = self._start, self.settings.factors
        for table, mean, variance in ((start.users, self.u, self.u_variance), (start.items, self.v, self.v_variance)):
            table[:, :K], table[:, table.shape[1] // 2 : table.shape[1] // 2 + K] = mean, variance
        start.z[:] = self.z
        return start


def _maximize_factors(
    own: tuple[np.ndarray, np.ndarray],
    other: tuple[np.ndarray, np.ndarray],
    signs: np.ndarray,
    twice_lambda: np.ndarray,
    z: float,
    prior: float,
) -> None:
    """Maximize the bound over one factor after another of a side's q, in place, for all its vertices at once."""
    (mean, variance), (others, other_variance) = own, other
    residual = signs - twice_lambda * (mean @ others.T + np.float32(z))  # x - 1/2 - 2 lambda E a
    for k in range(mean.shape[1]):
        v = others[:, k]
        of_squares = twice_lambda @ (v * v)
        precision = 1 / prior + of_squares + twice_lambda @ other_variance[:, k]
        new = (residual @ v + mean[:, k] * of_squares) / precision
        residual -= twice_lambda * np.outer(new - mean[:, k], v)
        mean[:, k], variance[:, k] = new, 1 / precision


def trace_batch(split: SplitMatrices, settings: BinaryMatrixSettings, seed: int, sweeps: int) -> Iterator[dict]:
    """Yield the rows of batch inference after SHOWN_PASSES sweeps."""
    batch, spent = BatchInference(split.train, settings, seed), 0.0
    for number in range(1, sweeps + 1):
        started = time.process_time()
        batch.sweep()
        spent += time.process_time() - started
        if number in SHOWN_PASSES:
            model, _ = fit_model(split, settings, seed, 1)
            model.q = batch.posterior()
            yield evaluate_fit(
                model, split, f"batch, {number} sweeps", spent, number * batch.u.shape[0] * batch.v.shape[0]
            )


def trace_stochastic(split: SplitMatrices, settings: BinaryMatrixSettings, seed: int) -> Iterator[dict]:
    """Yield the rows of stochastic fits with SHOWN_PASSES passes, each over two entries for every edge."""
    for passes in SHOWN_PASSES:
        model, seconds = fit_model(split, settings, seed, passes)
        label = f"S-{settings.sampling.capitalize()}, {passes} passes"
        yield evaluate_fit(model, split, label, seconds, 2 * passes * split.train.nnz)


def fit_model(
    split: SplitMatrices, settings: BinaryMatrixSettings, seed: int, passes: int
) -> tuple[BinaryMatrix, float]:
    """Fit the model; returns it with its CPU seconds."""
    model = BinaryMatrix(settings.model_copy(update={"passes": passes}), seed=seed)
    started = time.process_time()
    model.fit(split.train)
    return model, time.process_time() - started


def evaluate_fit(model: BinaryMatrix, split: SplitMatrices, label: str, seconds: float, entries: int) -> dict[str, str]:
    """Evaluate a fit and return its row of the table."""
    means = metrics.average_over_users(rank_part_targets(model, "score", split.parts["test"]).of_users)
    S = means["mean_rank"]
    return {
        "inference": label,
        "entries visited, millions": f"{entries / 1e6:.2f}",
        "bound": f"{model.bound(split.train):,.0f}",
        "S": f"{S.value:.4f} ± {S.standard_error:.4f}",
        "CPU s": f"{seconds:.2f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="demo")
    parser.add_argument("--source", action="append", default=[])
    parser.add_argument("--sweeps", type=int, default=40, help="of batch inference")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        parameters = BackfillParameters(
            dataset=options.dataset, source=options.source, home=home, seed=options.seed, protocols=[PROTOCOL]
        )
        split = build_splits(resolve_settings(parameters))[PROTOCOL]
        users, items = split.train.shape
        print(f"{options.dataset}: {users:,} users x {items:,} items, {split.train.nnz:,} ones\n")
        defaults = BinaryMatrixSettings()
        fit_model(split, defaults, options.seed, 1)  # compiles
        rows = [*trace_batch(split, defaults, options.seed, options.sweeps)]
        for strategy in STRATEGIES:
            rows += trace_stochastic(split, defaults.model_copy(update={"sampling": strategy}), options.seed)
    print_table(rows)


if __name__ == "__main__":
    main()
