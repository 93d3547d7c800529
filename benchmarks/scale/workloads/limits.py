"""The machine's own rates in CPU seconds, and the least time of a model's work at these rates.

The rates are those of a copy, a random gather, SGEMM, Cholesky and DuckDB's bare statements. The work is a lower bound:
a fit of factors gathers the rows of the other side once per edge, pass and side, from tables of its own size; one by
X'X visits every pair of a user's items; a dense inverse takes n^3 operations in LAPACK's potrf and potri.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from benchmarks.scale.workloads.processes import Measurement
from benchmarks.speed import ingest
from benchmarks.speed.timing import time_least
from oneclass.models.base import Model
from oneclass.tasks.stores.home import Home

REPEATS = 3
ROW_FLOATS = 64  # of a row in the random gather
GATHERED_FLOATS = 1 << 22
FLOAT_BYTES = 4
GATHERS = {"bpr_uniform": 3, "bpr_popularity": 3}  # rows an edge and a pass; 2 of other models with factors
PAIR_MODELS = ("mrf_sparse", "slim", "item_knn", "sansa", "graph_filter")
Bound = tuple[str, float | None]


@dataclass(frozen=True)
class Rates:
    """Bytes copied and gathered, and operations of SGEMM and of Cholesky, in one CPU second."""

    copy: float
    gather: float
    sgemm: float
    cholesky: float

    def describe(self) -> str:
        """Format the line above the table."""
        row_bytes = FLOAT_BYTES * ROW_FLOATS
        return (
            f"A CPU second of this machine: copy {self.copy / 1e9:.2f} GB, random gather of rows of {row_bytes} bytes "
            f"{self.gather / 1e9:.2f} GB, SGEMM {self.sgemm / 1e9:.0f} GFLOP, Cholesky {self.cholesky / 1e9:.0f} GFLOP."
        )


def measure_least(work: Callable[[], object]) -> float:
    """Measure the fewest CPU seconds of some repeats."""
    return max(time_least(work, REPEATS).cpu, 1e-9)


def measure_rates(size: int = 1 << 25) -> list[Measurement]:
    """Measure the machine's rates on one thread; two would spend CPU seconds on waiting for each other.

    Args:
        size: float32 numbers that are copied and gathered; the multiplied matrices have as many bytes or fewer.
    """
    side = min(3000, int(size**0.5))
    source = np.ones(size, dtype=np.float32)
    target = np.zeros_like(source)
    copy = source.nbytes / measure_least(lambda: np.copyto(target, source))
    gather = measure_gather_rate(size // ROW_FLOATS, ROW_FLOATS, size)
    square = np.ones((side, side), dtype=np.float32)
    definite = np.asfortranarray(square + side * np.eye(side, dtype=np.float32))
    with threadpool_limits(1, user_api="blas"):
        sgemm = 2.0 * side**3 / measure_least(lambda: square @ square)
        cholesky = side**3 / 3 / measure_least(lambda: lapack.spotrf(definite, lower=1, clean=0))
    return [Measurement(result={"rates": Rates(copy, gather, sgemm, cholesky)})]


def measure_gather_rate(rows: int, width: int, size: int = GATHERED_FLOATS) -> float:
    """Measure the bytes a CPU second of random rows of `width` float32 from a table of `rows`, which may be cached."""
    table, out = np.ones((rows, width), dtype=np.float32), np.empty((max(1, size // width), width), dtype=np.float32)
    indices = np.random.default_rng(0).integers(0, rows, len(out))
    return out.nbytes / measure_least(lambda: np.take(table, indices, axis=0, out=out, mode="clip"))


def time_bare_read(home: Home, files: list[Path]) -> float:
    """Measure the CPU seconds of `create table as` of DuckDB's bare `read_csv` of the log, ids as text."""
    options = f", header = false, null_padding = true, {ingest.NETFLIX_IDS.format()}"
    with tempfile.TemporaryDirectory(dir=home.folder) as folder:
        pattern = files[0].parent / f"*{files[0].suffix}"
        return measure_least(partial(ingest.read_bare, pattern, Path(folder), home.limits, options))


def time_bare_table(home: Home) -> float:
    """Measure the CPU seconds of `create table as` of the edges, by index, into another database."""
    with tempfile.TemporaryDirectory(dir=home.folder) as folder:
        config = {"threads": home.limits.threads, "memory_limit": f"{home.limits.memory}B"}
        with duckdb.connect(f"{folder}/bare.duckdb", config=config) as connection:
            connection.execute(f"attach '{home.warehouse}' as home (read_only)")
            copy = (
                "create or replace table bare as select * from home.indexed.interactions order by user_index, "
                "item_index"
            )
            return measure_least(lambda: connection.execute(copy))


def count_factors(model: Model) -> int | None:
    """Return the numbers of a user or an item, if the model has them."""
    numbers = (getattr(model.params, name, None) for name in ("factors", "hidden"))
    return next((number for number in numbers if number), None)


def bound_fit(model: Model, train: csr_matrix, passes: int, rates: Rates) -> Bound:
    """Name the bound of a fit, and its CPU seconds; none for a model without a formula here."""
    if model.name == "popularity":
        return "copy of the items of the edges", FLOAT_BYTES * train.nnz / rates.copy
    if model.name == "mrf_dense":
        return "Cholesky, n^3", float(train.shape[1]) ** 3 / rates.cholesky
    if model.name in PAIR_MODELS:
        pairs = float((np.diff(train.indptr).astype(float) ** 2).sum()) / 2
        return "gather of a user's pairs", FLOAT_BYTES * pairs / rates.gather
    if factors := count_factors(model):
        gathered = FLOAT_BYTES * factors * passes * GATHERS.get(model.name, 2) * float(train.nnz)
        rate = measure_gather_rate(sum(train.shape), factors)
        return f"gather of rows, K = {factors}, {passes} passes", gathered / rate
    return "", None


def bound_scores(model: Model, users: int, items: int, rates: Rates) -> Bound:
    """Name the bound of some users' scores, and its CPU seconds: their product, or writing them."""
    if factors := count_factors(model):
        return f"SGEMM, K = {factors}", 2.0 * factors * users * items / rates.sgemm
    return "copy of the scores", float(FLOAT_BYTES) * users * items / rates.copy
