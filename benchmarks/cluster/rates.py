"""What this machine takes for the parts of a pass, in CPU seconds of one thread: short fits of the demo's graph.

Each rate is the least-squares solution, none below zero, of a few fits that differ in edges, users, items or blocks; a fit
counts with its quickest pass, which other work on the machine slowed least.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.cluster import judging, minibatches
from benchmarks.cluster.judging import Judging
from benchmarks.cluster.least_squares import solved
from benchmarks.cluster.minibatches import Minibatch
from benchmarks.posted import Posted, shelved
from benchmarks.random_graph import demo_graph
from models.base import Model
from models.fitting import FitOptions
from models.hpf.model import HPF, HPFSettings
from models.mrf.dense import MRFDense
from models.mrf.sparse import MRFSparse
from models.numerics.threads import kernel_threads
from models.paired_symbols.model import PairedSymbols, PairedSymbolsSettings
from models.random_graph.blocks import Terms, begun
from models.random_graph.inference import step_sizes
from models.random_graph.model import RandomGraph, RandomGraphSettings
from models.slim.model import SLIM
from models.wmf.model import WMF, WMFSettings

PASSES = 6
REPEATS = 3  # of the fits by blocks
SEED = 1
OF_BLOCKS = (  # users, items, edges, blocks: few users and many, few edges and many; none as in a check
    (6_000, 4_000, 500_000, 1), (6_000, 4_000, 500_000, 12), (150_000, 4_000, 500_000, 1), (25_000, 4_000, 250_000, 6),
)  # fmt: skip
OF_PASSES = (40_000, 40_000, 250_000), (40_000, 40_000, 1_000_000)  # rows of items that no cache holds
OF_ITEMS = (5_000, 1_000, 300_000), (5_000, 3_000, 300_000), (15_000, 3_000, 900_000)
OF_RUNS = (  # users, items, edges, blocks: many pairs and few, many runs and few
    (15_000, 3_000, 600_000, 2), (15_000, 3_000, 600_000, 12), (60_000, 3_000, 600_000, 12),
)  # fmt: skip


@dataclass(frozen=True)
class Blocks:
    """A pass by blocks of users in each of its exchanges, CPU seconds.

    Attributes:
        edge, user: of the work on each.
        item_of_block: what each item costs each block.
        handled: to pickle, read back and add a block's message, and the call that asks for it, for each item.
        update: of each item.
    """

    edge: np.ndarray
    user: np.ndarray
    item_of_block: np.ndarray
    handled: float
    update: float


@dataclass(frozen=True)
class Rates:
    """CPU seconds.

    Attributes:
        blocks: of random_graph.
        handled_byte: of a message that is pickled, read back and added.
        passes: model -> (of an edge, of a user or item) in a pass.
        pair, cube: of a pair of items that a user has both of, in the Gram matrix; of its inverse, for each n^3.
        own: mrf_sparse and slim -> of an item's own systems in a fit; what it has of the Gram matrix counts as pairs.
        counted: of an edge that is counted.
        skew: mean square of the users' degrees over the square of their mean, in the graph of the measurements.
        rows: mrf_sparse and slim -> of a pair in the rows that a run of items sums, and of an edge that a run reads.
        minibatch: of binary_matrix.
        judging: of users by wmf.
    """

    blocks: Blocks
    handled_byte: float
    passes: dict[str, tuple[float, float]]
    pair: float
    cube: float
    own: dict[str, float]
    counted: float
    skew: float
    rows: dict[str, tuple[float, float]] = field(default_factory=dict)
    minibatch: Minibatch | None = None
    judging: Judging | None = None


def by_blocks(matrix: csr_matrix, count: int) -> tuple[np.ndarray, float]:
    """The quickest pass of random_graph by `count` blocks, after the first.

    Returns:
        Seconds within the calls of each of the two exchanges, float (2,); seconds of all else.
    """
    settings = RandomGraphSettings(bound_every=0, t_tau=0, iterations=PASSES, blocks=count)
    inside, beside = [], []
    model = RandomGraph(RandomGraphSettings(bound_every=0, iterations=1)).fit(matrix)  # for its weights
    with tempfile.TemporaryDirectory() as folder, kernel_threads(1):
        q = model._beginning(matrix.shape, None)
        posted = Posted()
        options = FitOptions(workers=posted, rows=shelved(matrix, Path(folder)))
        with begun(Terms(settings, 0, 1), q, model.weights, matrix, options) as posterior:
            for t, step in enumerate(step_sizes(PASSES, settings.t_epsilon), start=1):
                posted.work.clear()
                began = time.process_time()
                posterior.iterate(t, step)
                took = time.process_time() - began
                inside.append(np.reshape(posted.work, (2, -1)).sum(axis=1))
                beside.append(took - inside[-1].sum())
    return np.min(inside[1:], axis=0), min(beside[1:])


def of_rows(model: type[Model]) -> tuple[float, float]:
    """Of a pair, and of an edge that a run reads: the first call of each run, in the quickest of `REPEATS` fits."""
    sizes, seconds = [], []
    for users, items, edges, blocks in OF_RUNS:
        matrix, took = demo_graph(users, items, edges, SEED), []
        with tempfile.TemporaryDirectory() as folder:
            rows = shelved(matrix, Path(folder))
            for _ in range(REPEATS):
                model(model.Settings(blocks=blocks)).fit(matrix, FitOptions(workers=(posted := Posted()), rows=rows))
                took.append(sum(posted.work[:blocks]))
        sizes.append((pairs(matrix), blocks * matrix.nnz))
        seconds.append(min(took))
    pair, edge = solved(sizes, seconds)
    return float(pair), float(edge)


def a_pass(model: Model, matrix: csr_matrix) -> float:
    """Seconds of the quickest pass after the first."""
    ends = []
    model.fit(matrix, FitOptions(on_epoch=lambda _: ends.append(time.process_time())))
    return float(np.diff(ends).min())


def fitted(model: Model, matrix: csr_matrix) -> float:
    """Seconds of the quicker of two fits; the first may load kernels."""
    took = []
    for _ in range(2):
        began = time.process_time()
        model.fit(matrix)
        took.append(time.process_time() - began)
    return min(took)


@dataclass(frozen=True)
class Fit:
    """A fit by blocks, and what `by_blocks` found, the quickest of `REPEATS`."""

    matrix: csr_matrix
    blocks: int
    inside: np.ndarray
    beside: float


def fits(sizes: Sequence[tuple[int, int, int, int]]) -> list[Fit]:
    """One fit for each (users, items, edges, blocks), in rounds, so that a busy minute is not one fit's alone."""
    graphs = {size[:3]: demo_graph(*size[:3], SEED) for size in sizes}
    rounds = [[by_blocks(graphs[size[:3]], size[3]) for size in sizes] for _ in range(REPEATS)]
    return [
        Fit(
            graphs[size[:3]],
            size[3],
            np.min([inside for inside, _ in found], axis=0),
            min(beside for _, beside in found),
        )
        for size, *found in zip(sizes, *rounds, strict=True)
    ]


def of_blocks(found: Sequence[Fit]) -> Blocks:
    """random_graph's rates from fits by blocks."""
    items = [fit.matrix.shape[1] for fit in found]
    each = [count * fit.blocks for count, fit in zip(items, found, strict=True)]
    sizes = [(fit.matrix.nnz, fit.matrix.shape[0], size) for fit, size in zip(found, each, strict=True)]
    rates = np.array([solved(sizes, [fit.inside[part] for fit in found]) for part in (0, 1)])
    handled, update = solved(list(zip(each, items, strict=True)), [fit.beside for fit in found])
    return Blocks(*rates.T, handled, update)


ITERATIVE: dict[str, Callable[[], Model]] = {
    "hpf": lambda: HPF(HPFSettings(max_iterations=PASSES, tolerance=0)),
    "paired_symbols": lambda: PairedSymbols(PairedSymbolsSettings(iterations=PASSES, tolerance=0)),
    "wmf": lambda: WMF(WMFSettings(iterations=PASSES, tolerance=0)),
}


def measured(message: int, checks: Sequence[tuple[int, int, int, int]]) -> tuple[Rates, list[Fit]]:
    """All rates, and fits for a check of them, made in the same rounds as those that the rates are of.

    Args:
        message: bytes of random_graph's messages of a pass, both ways, for an item and block.
        checks: (users, items, edges, blocks) of each.
    """
    made = fits((*OF_BLOCKS, *checks))
    blocks = of_blocks(made[: len(OF_BLOCKS)])
    few, many = (demo_graph(*size, SEED) for size in OF_PASSES)
    sizes = [(matrix.nnz, sum(matrix.shape)) for matrix in (few, many)]
    passes = {
        name: tuple(solved(sizes, [a_pass(make(), matrix) for matrix in (few, many)]))
        for name, make in ITERATIVE.items()
    }
    item_models = [demo_graph(*size, SEED) for size in OF_ITEMS]
    gram = [(pairs(matrix), float(matrix.shape[1]) ** 3) for matrix in item_models]
    pair, cube = solved(gram, [fitted(MRFDense(), matrix) for matrix in item_models])
    own = {
        model.name: np.mean([max(0.0, fitted(model(), one) - pair * pairs(one)) / one.shape[1] for one in item_models])
        for model in (MRFSparse, SLIM)
    }
    degrees = np.diff(many.indptr).astype(float)
    began = time.process_time()
    for _ in range(PASSES):
        np.bincount(many.indices, minlength=many.shape[1])
    counted = (time.process_time() - began) / PASSES / many.nnz
    skew = (degrees**2).mean() / degrees.mean() ** 2
    rows = {model.name: of_rows(model) for model in (MRFSparse, SLIM)}
    own_fits = rows, minibatches.measured(), judging.measured()
    rates = Rates(blocks, blocks.handled / message, passes, pair, cube, own, counted, skew, *own_fits)
    return rates, made[len(OF_BLOCKS) :]


def pairs(matrix: csr_matrix) -> float:
    """Half the sum of the users' degrees squared."""
    return float((np.diff(matrix.indptr).astype(float) ** 2).sum() / 2)
