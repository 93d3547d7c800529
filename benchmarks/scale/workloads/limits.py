"""The machine's own rates, in CPU seconds, and the least time a model's work takes at these rates.

The rates are those of a copy, a random gather, SGEMM, Cholesky and DuckDB's bare statements. The work is a bound, not a
plan: a fit by factors gathers the rows of the other side once per edge, pass and side, out of tables of its own size;
one by X'X meets every pair of a user's items; a dense inverse is n^3 operations of LAPACK's potrf and potri.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import duckdb
import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from benchmarks.scale.workloads.apart import Took
from benchmarks.speed import ingest
from oneclass.models.base import Model
from oneclass.tasks.stores.home import Home

REPEATS = 3
WIDTH = 64  # float32 of a row that is gathered
GATHERED = 1 << 22  # float32 that are gathered of a table


@dataclass(frozen=True)
class Rates:
    """Of one CPU second: bytes copied and gathered, floating-point operations of SGEMM and of Cholesky."""

    copy: float
    gather: float
    sgemm: float
    cholesky: float

    def describe(self) -> str:
        """A line for above the table."""
        return (
            f"A CPU second of this machine: copy {self.copy / 1e9:.2f} GB, random gather of rows of {4 * WIDTH} bytes "
            f"{self.gather / 1e9:.2f} GB, SGEMM {self.sgemm / 1e9:.0f} GFLOP, Cholesky {self.cholesky / 1e9:.0f} GFLOP."
        )


def best(work: Callable[[], object]) -> float:
    """The fewest CPU seconds of some repeats."""
    took = []
    for _ in range(REPEATS):
        began = process_time()
        work()
        took.append(process_time() - began)
    return max(min(took), 1e-9)


def rates(size: int = 1 << 25) -> list[Took]:
    """Measure the machine's rates by one thread (two that wait for each other spend CPU seconds); the result's `rates`.

    Args:
        size: float32 numbers that are copied and gathered; the products are of matrices of as many bytes or fewer.
    """
    side = min(3000, int(size**0.5))
    source = np.ones(size, dtype=np.float32)
    target = np.zeros_like(source)
    copied = source.nbytes / best(lambda: np.copyto(target, source))
    gathered = gather(size // WIDTH, WIDTH, size)
    square = np.ones((side, side), dtype=np.float32)
    definite = np.asfortranarray(square + side * np.eye(side, dtype=np.float32))
    with threadpool_limits(1, user_api="blas"):
        product = 2.0 * side**3 / best(lambda: square @ square)
        factor = side**3 / 3 / best(lambda: lapack.spotrf(definite, lower=1, clean=0))
    return [Took(found={"rates": Rates(copied, gathered, product, factor)})]


def gather(rows: int, width: int, size: int = GATHERED) -> float:
    """Bytes a CPU second of rows of `width` float32, taken at random from a table of `rows`, which a cache may hold."""
    table, out = np.ones((rows, width), dtype=np.float32), np.empty((max(1, size // width), width), dtype=np.float32)
    places = np.random.default_rng(0).integers(0, rows, len(out))
    return out.nbytes / best(lambda: np.take(table, places, axis=0, out=out, mode="clip"))


def bare_read(home: Home, files: list[Path]) -> float:
    """CPU seconds of `create table as` of DuckDB's bare `read_csv` of the log, ids as text."""
    pattern = files[0].parent / f"*{files[0].suffix}"
    if files[0].suffix == ".csv":
        options = ", header = true, types = {'user': 'VARCHAR', 'item': 'VARCHAR'}"
    else:
        options = f", header = false, null_padding = true, {ingest.NETFLIX_IDS.format()}"
    with tempfile.TemporaryDirectory(dir=home.folder) as aside:
        return best(lambda: ingest.bare(pattern, Path(aside), home.limits, options))


def bare_table(home: Home) -> float:
    """CPU seconds of `create table as` of the edges in the order of their indices, into a database of its own."""
    with tempfile.TemporaryDirectory(dir=home.folder) as aside:
        config = {"threads": home.limits.threads, "memory_limit": f"{home.limits.memory}B"}
        with duckdb.connect(f"{aside}/bare.duckdb", config=config) as connection:
            connection.execute(f"attach '{home.warehouse}' as home (read_only)")
            copy = (
                "create or replace table bare as select * from home.indexed.interactions order by user_index, "
                "item_index"
            )
            return best(lambda: connection.execute(copy))


FLOAT = 4  # bytes
GATHERS = {"bpr_uniform": 3, "bpr_popularity": 3}  # rows an edge and a pass; of other models by factors 2
BY_PAIRS = ("mrf_sparse", "slim", "item_knn", "sansa", "graph_filter")
Bound = tuple[str, float | None]


def width(model: Model) -> int | None:
    """Numbers a user or an item, of a model that has them."""
    return next((found for name in ("factors", "hidden") if (found := getattr(model.params, name, None))), None)


def of_fit(model: Model, train: csr_matrix, passes: int, rates: Rates) -> Bound:
    """What bounds a fit, and its CPU seconds; none of a model that is not known here."""
    if model.name == "popularity":
        return "copy of the items of the edges", FLOAT * train.nnz / rates.copy
    if model.name == "mrf_dense":
        return "Cholesky, n^3", float(train.shape[1]) ** 3 / rates.cholesky
    if model.name in BY_PAIRS:
        pairs = float((np.diff(train.indptr).astype(float) ** 2).sum()) / 2
        return "gather of a user's pairs", FLOAT * pairs / rates.gather
    if numbers := width(model):
        rows = passes * GATHERS.get(model.name, 2) * float(train.nnz)
        return f"gather of rows, K = {numbers}, {passes} passes", FLOAT * numbers * rows / gather(
            sum(train.shape), numbers
        )
    return "", None


def of_scores(model: Model, users: int, items: int, rates: Rates) -> Bound:
    """What bounds the scores of some users, and its CPU seconds: their product, or writing them."""
    if numbers := width(model):
        return f"SGEMM, K = {numbers}", 2.0 * numbers * users * items / rates.sgemm
    return "copy of the scores", float(FLOAT) * users * items / rates.copy
