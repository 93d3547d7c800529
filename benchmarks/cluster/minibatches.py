"""What a minibatch of binary_matrix takes by blocks of users, in CPU seconds of one thread: short fits of the demo's graph."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.cluster.least_squares import solved
from benchmarks.posted import Posted, shelved
from benchmarks.random_graph import demo_graph
from models.binary_matrix.model import BinaryMatrix
from models.binary_matrix.settings import BinaryMatrixSettings
from models.fitting import FitOptions

PASSES = 4
SEED = 1
FITS = (  # users, items, edges, blocks, entries of a minibatch: of each few and many
    (6_000, 4_000, 250_000, 2, 50_000), (6_000, 4_000, 250_000, 12, 50_000), (6_000, 4_000, 250_000, 2, 250_000),
    (6_000, 4_000, 250_000, 12, 250_000), (60_000, 4_000, 250_000, 2, 50_000), (20_000, 4_000, 1_000_000, 2, 200_000),
)  # fmt: skip


@dataclass(frozen=True)
class Minibatch:
    """CPU seconds of a minibatch.

    Attributes:
        entry: of an entry, in the block that has its row.
        edge, user: of each of a block's, however few entries it has.
        drawn: of an entry, in each block, to see whose it is.
        item_of_block: what each item costs each block.
        handled: to pickle, read back and add a block's message, and the call that asks for it, for each item.
        update: of each item.
    """

    entry: float
    edge: float
    user: float
    drawn: float
    item_of_block: float
    handled: float
    update: float


def measured() -> Minibatch:
    """The least-squares solution of all fits, no rate below zero."""
    inside, beside = np.transpose([a_minibatch(*size) for size in FITS])
    sizes = [(entries, edges, users, blocks * entries, blocks * items) for users, items, edges, blocks, entries in FITS]
    own = solved(sizes, inside)
    together = solved([(blocks * items, items) for _, items, _, blocks, _ in FITS], beside)
    return Minibatch(*map(float, (*own, *together)))


def a_minibatch(users: int, items: int, edges: int, blocks: int, entries: int) -> tuple[float, float]:
    """Seconds within the calls of all blocks, and of all else: of a minibatch of the quickest pass after the first."""
    matrix, posted, passes, began = demo_graph(users, items, edges, SEED), Posted(), [], 0.0

    def end(_: object) -> None:
        nonlocal began
        minibatches = len(posted.work) // blocks - 1  # the last exchange is of the bound
        within, beside = sum(posted.work[:-blocks]), time.process_time() - began - sum(posted.work)
        passes.append((within / minibatches, beside / minibatches))
        posted.work.clear()
        began = time.process_time()

    settings = BinaryMatrixSettings(passes=PASSES, blocks=blocks, least_batch=entries, most_batch=entries)
    with tempfile.TemporaryDirectory() as folder:
        options = FitOptions(workers=posted, rows=shelved(matrix, Path(folder)), on_epoch=end)
        began = time.process_time()
        BinaryMatrix(settings).fit(matrix, options)
    return tuple(np.min(passes[1:], axis=0))
