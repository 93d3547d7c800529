"""item_knn beside irspack and implicit, and sansa beside mrf_sparse: CPU seconds of a fit, and recall@20.

    python -m benchmarks.speed.item_knn --lines ../shared/data/gowalla/train.txt [--neighbours 100] [--threads 2]
    python -m benchmarks.speed.item_knn --made 166666 195795 1850000

A line of the file has a user and the user's items, of which the last fifth is to be found; with `--made` the log is
drawn with long tails, and there is nothing to find. All fits are in one process, ours compiled beforehand; where
irspack 0.5.2 or implicit 0.7.3 cannot be imported, its rows are left out. Recall is over `--users` users. CPU time is
the process's: on a busy machine trust it more than the wall clock.
"""

import argparse
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.speed.mrf_sparse import long_tailed, pattern
from oneclass.models.base import Model
from oneclass.models.item_knn import ItemKNN
from oneclass.models.mrf.sparse import MRFSparse
from oneclass.models.numerics.sparse_products import sparse_times
from oneclass.models.numerics.top_k import top_items
from oneclass.models.sansa import SANSA

CUTOFF, BLOCK = 20, 500


def read_lines(file: Path) -> tuple[csr_matrix, csr_matrix]:
    """The training edges and those that are to be found, each (users, items)."""
    lines = [list(dict.fromkeys(map(int, line.split()[1:]))) for line in file.read_text().splitlines()]
    shape = len(lines), 1 + max(max(items, default=0) for items in lines)
    kept = [len(items) - len(items) // 5 for items in lines]
    parts = [
        [items[:count] for items, count in zip(lines, kept, strict=True)],
        [items[count:] for items, count in zip(lines, kept, strict=True)],
    ]
    train, held_out = (
        pattern(np.repeat(np.arange(shape[0]), [len(items) for items in part]), np.concatenate(part).astype(int), shape)
        for part in parts
    )
    return train, held_out


def fits(train: csr_matrix, given: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Callable]]]:
    """Each model's name, and what fits it and returns what scores histories."""
    neighbours, threads = given.neighbours, given.threads

    def ours(model: Model) -> Callable[[], Callable]:
        return lambda: model.fit(train).scores

    def weights(table: Any) -> Callable:
        table = csr_matrix(table, dtype=np.float32)
        return lambda histories: sparse_times(histories, table)

    for similarity, more in (("cosine", {}), ("rp3beta", {"alpha": 1.0, "beta": 0.2}), ("rp3beta", {})):
        settings = ItemKNN.Settings(similarity=similarity, neighbours=neighbours, **more)
        name = f"item_knn {similarity} {more or ''}".strip()
        yield name, ours(ItemKNN(settings, threads=threads))
    yield "sansa", ours(SANSA(threads=threads))
    yield "mrf_sparse", ours(MRFSparse(threads=threads))
    doubles = csr_matrix(train, dtype=np.float64)
    if importlib.util.find_spec("irspack"):
        from irspack.recommenders import CosineKNNRecommender, RP3betaRecommender

        cosine = CosineKNNRecommender(doubles, normalize=True, top_k=neighbours, n_threads=threads)
        walks = RP3betaRecommender(doubles, alpha=1.0, beta=0.2, top_k=neighbours, n_threads=threads)
        yield "irspack cosine", lambda: weights(cosine.learn().W)
        yield "irspack rp3beta {'alpha': 1.0, 'beta': 0.2}", lambda: weights(walks.learn().W)
    if importlib.util.find_spec("implicit"):
        from implicit.nearest_neighbours import CosineRecommender

        def fit() -> Callable:
            model = CosineRecommender(K=neighbours, num_threads=threads)
            model.fit(doubles, show_progress=False)
            return weights(model.similarity)

        yield "implicit cosine", fit


def find_recall(score: Callable, train: csr_matrix, held_out: csr_matrix, users: int) -> float:
    """Mean share of the held-out items among the first 20."""
    tested = np.flatnonzero(np.diff(held_out.indptr))[:users]
    found = []
    for start in range(0, len(tested), BLOCK):
        block = tested[start : start + BLOCK]
        histories = train[block]
        ids, _ = top_items(score(histories), histories.indptr, histories.indices, CUTOFF)
        targets = held_out[block].toarray() > 0
        found.append(np.take_along_axis(targets, ids, axis=1).sum(axis=1) / targets.sum(axis=1))
    return float(np.concatenate(found).mean())


def main(arguments: list[str] | None = None) -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.item_knn", description=__doc__, formatter_class=layout
    )
    log = parser.add_mutually_exclusive_group(required=True)
    log.add_argument("--lines", type=Path, help="a file with a user's items on each line")
    log.add_argument("--made", nargs=3, type=int, metavar=("USERS", "ITEMS", "EDGES"))
    parser.add_argument("--neighbours", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--users", type=int, default=5000)
    given = parser.parse_args(arguments)
    train, held_out = read_lines(given.lines) if given.lines else (long_tailed(*given.made), None)
    for _, fit in fits(long_tailed(300, 200, 4000), given):
        fit()
    print(f"{train.shape[0]:,} users, {train.shape[1]:,} items, {train.nnz:,} edges, {given.threads} threads\n")
    print("| model | CPU s of the fit | recall@20 |\n|---|---|---|")
    for name, fit in fits(train, given):
        started = process_time()
        score = fit()
        took = process_time() - started
        recall = "" if held_out is None else f"{find_recall(score, train, held_out, given.users):.4f}"
        print(f"| {name} | {took:.2f} | {recall} |", flush=True)


if __name__ == "__main__":
    main()
