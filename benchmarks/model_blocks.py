"""Blocks of users in wmf, hpf, paired_symbols, binary_matrix and mrf_dense: what travels, what a pass costs, and how far the fit is from one machine's.

    python -m benchmarks.model_blocks [--edges 1000000] [--fit wmf wmf:solver=cholesky hpf paired_symbols binary_matrix mrf_dense]
                                     [--blocks 1 4 16]

The graph is the demo's own. Everything runs in this process and on one thread; every call and answer is pickled and read
back as if it went to another. Times are CPU seconds of the quickest pass after the first; a pass of mrf_dense is a fit. One block is a fit of all users as
one, in which nothing travels.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.posted import Posted, head, row, shelved
from benchmarks.random_graph import demo_graph
from models.base import Model
from models.binary_matrix.messages import numbers as binary_numbers
from models.binary_matrix.settings import BinaryMatrixSettings
from models.binary_matrix.tables import width_of
from models.catalogue import MODELS
from models.fitting import Epoch, FitOptions
from models.hpf.model import HPFSettings
from models.mrf.dense import MRFDenseSettings
from models.mrf.dense_blocks import stripes
from models.paired_symbols.messages import numbers as paired_numbers
from models.paired_symbols.settings import PairedSymbolsSettings
from models.settings import ModelSettings
from models.wmf.model import WMFSettings
from models.wmf.sums import numbers


def wmf_bytes(settings: WMFSettings, items: int, blocks: int) -> int:
    """Of a block and a pass: docs/scaling.md."""
    K, width = settings.factors, -(-settings.factors // 16) * 16
    if settings.solver == "cg":
        return 4 * (2 * K * (1 + settings.cg_steps) * items + width**2 + K**2)
    return 4 * ((K + numbers(K)) * items + width**2 + K**2)


def hpf_bytes(settings: HPFSettings, items: int, blocks: int) -> int:
    """Of a block and a pass: docs/scaling.md."""
    return 8 * settings.factors * items + 24 * settings.factors


def paired_bytes(settings: PairedSymbolsSettings, items: int, blocks: int) -> int:
    """Of a block and a pass: docs/scaling.md."""
    n = settings.factors + 2
    row = 8 * (-(-n // 8) * 8)
    learned = (2 * row + 32) * items if settings.learn_selection else 0
    exchanges = 4 if settings.learn_selection else 2
    return (2 * row + 4 * paired_numbers(settings.factors)) * items + learned + 8 * n**2 * (exchanges + 1)


def binary_bytes(settings: BinaryMatrixSettings, items: int, blocks: int) -> int:
    """Of a block and a minibatch: docs/scaling.md."""
    return (8 * width_of(settings.factors) + 4 * binary_numbers(settings.factors)) * items


def mrf_bytes(settings: MRFDenseSettings, items: int, blocks: int) -> int:
    """Of a block and a fit: docs/scaling.md."""
    return sum(8 * (end - first) * end for first, end in stripes(items, blocks))


FITS = [
    "wmf",
    "wmf:solver=cholesky",
    "hpf",
    "paired_symbols",
    "paired_symbols:learn_selection=true",
    "binary_matrix:least_batch=200000,most_batch=200000",
    "mrf_dense",
]
BYTES: dict[str, Callable] = {
    "wmf": wmf_bytes,
    "hpf": hpf_bytes,
    "paired_symbols": paired_bytes,
    "binary_matrix": binary_bytes,
    "mrf_dense": mrf_bytes,
}
PASSES = {"wmf": "iterations", "hpf": "max_iterations", "paired_symbols": "iterations", "binary_matrix": "passes"}
# of items, where a model has no `item_vectors`
VECTORS = {"mrf_dense": "weights", "paired_symbols": "item_rows", "binary_matrix": "q.items"}


def report(matrix: csr_matrix, name: str, given: dict, counts: list[int], passes: int) -> None:
    made = {PASSES[name]: passes} if name in PASSES else {}
    made |= {"tolerance": 0} if "tolerance" in MODELS[name].Settings.model_fields else {}
    settings = MODELS[name].Settings(**made, **given)
    print(f"\n`{name}`, {given or 'defaults'}, {passes} passes")
    head(
        "blocks", "a pass, s", "calls, s", "the longest block, s", "sent, MB", "by formula, MB", "items apart", "value"
    )
    first: np.ndarray | None = None
    for count in counts:
        model, cells, value, exchanges = fitted(matrix, name, settings.model_copy(update={"blocks": count}), passes)
        vectors = attrgetter(VECTORS[name])(model) if name in VECTORS else model.item_vectors()
        first = vectors if first is None else first
        apart = np.abs(vectors - first).max() / np.abs(first).max()
        formula = count * BYTES[name](settings, matrix.shape[1], count) if count > 1 else 0
        formula *= exchanges - 1 if name == "binary_matrix" else 1  # minibatches; the last exchange is of the bound
        row(count, *cells, f"{formula / 1e6:.3f}", f"{apart:.1e}", value)


def fitted(matrix: csr_matrix, name: str, settings: ModelSettings, passes: int) -> tuple[Model, list[str], str, int]:
    """The fit; its quickest pass after the first, as cells; the last loss, or bound; and the exchanges of that pass."""
    posted, took, seen, value, began = Posted(), [], [], "", 0.0

    def end(epoch: Epoch) -> None:
        nonlocal value, began
        took.append(time.process_time() - began)
        seen.append((posted.work, posted.taken + posted.given))
        value = ", ".join(f"{number:.9g}" for number in epoch.values.values())
        posted.__init__()
        began = time.process_time()

    with tempfile.TemporaryDirectory() as folder:
        options = FitOptions(workers=posted, rows=shelved(matrix, Path(folder)), on_epoch=end)
        for _ in range(1 if name in PASSES else passes):
            began = time.process_time()
            model = MODELS[name](settings).fit(matrix, options)
    best = 1 + int(np.argmin(took[1:]))
    work, sent = seen[best]
    within = np.reshape(work, (-1, settings.blocks)).sum(axis=0) if work else np.zeros(1)
    cells = [f"{took[best]:.2f}", f"{within.sum():.2f}", f"{within.max():.2f}", f"{sent / 1e6:.3f}"]
    return model, cells, value, len(work) // settings.blocks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=1_000_000, help="likes; there is a user for each 40")
    parser.add_argument("--items", type=int, default=4_000)
    parser.add_argument("--fit", nargs="+", default=FITS, help="model:setting=value")
    parser.add_argument(
        "--blocks", nargs="+", type=int, default=[1, 4, 16], help="the first is what others are held to"
    )
    parser.add_argument("--passes", type=int, default=5)
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores as it begins")
    matrix = demo_graph(given.edges // 40, given.items, given.edges, 1)
    print(f"{matrix.shape[0]:,} users, {matrix.shape[1]:,} items, {matrix.nnz:,} edges")
    for fit in given.fit:
        name, _, settings = fit.partition(":")
        pairs = (pair.split("=") for pair in settings.split(",") if pair)
        report(matrix, name, dict(pairs), given.blocks, given.passes)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
