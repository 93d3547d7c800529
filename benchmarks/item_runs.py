"""Runs of items in slim and mrf_sparse, and popularity by blocks: what travels, what lies in files, what a fit costs and holds.

    python -m benchmarks.item_runs [--edges 1000000] [--fit popularity slim mrf_sparse] [--part costs memory killed]

The graph is the demo's own. `costs`: everything runs in this process and on one thread; every call and answer is pickled
and read back as if it went to another; CPU seconds of the quickest fit after the first. `memory`: a fit as one and by four
blocks, each in processes of their own that may have no more than a stated memory of their own (RLIMIT_DATA), which does
not count pages of mapped files. `killed`: fits on one, two and seven processes, one of which is killed at a call
drawn at random; their bits against those of one machine.
"""

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.blocks import Pool, most_resident, processes, report_memory
from benchmarks.posted import Posted, Shelf, head, row, shelved
from benchmarks.random_graph import demo_graph
from models.base import Model
from models.catalogue import MODELS
from models.fitting import FitOptions
from models.mrf.sparse_pattern import MARGIN, SAMPLE
from models.slim.kernels import DENSE


class Watched(Posted):
    """Beside what travels, the most bytes that lay in the fit's folder when calls were done."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.most = folder, 0

    def map(self, function: Callable, calls: Sequence[tuple]) -> list:
        answers = super().map(function, calls)
        held = sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())
        self.most = max(self.most, held)
        return answers


def sent(model: Model, shape: tuple[int, int], blocks: int) -> float:
    """Bytes of calls and answers, by docs/scaling.md; of mrf_sparse where every pair of items shares a user."""
    items = shape[1]
    if model.name == "popularity":
        return 8 * items * blocks
    if model.name == "slim":
        return 16 * items + 8 * model.weights.nnz
    most = min(items, model.settings.max_in_column) - 1
    sampled, wanted = len(range(0, items, max(1, items // SAMPLE))), model.resolved.density * items**2 - items
    return 32 * items + 24 * sampled + 8 * (sampled * most + MARGIN * wanted)


def gram_bytes(name: str, pairs: np.ndarray, items: int) -> float:
    """Bytes of the Gram matrix in files.

    Args:
        pairs: int (items,), the elements of each row that are not zero.
    """
    if name == "slim":
        return float(8 * np.where(DENSE * pairs > items, items, pairs).sum())
    return float(12 * pairs.sum()) if name == "mrf_sparse" else 0.0


def report_costs(matrix: csr_matrix, name: str, counts: Sequence[int], fits: int) -> None:
    pairs = np.diff((matrix.T.tocsr() @ matrix).indptr)
    print(f"\n`{name}`")
    head(
        "blocks", "a fit, s", "calls, s", "the longest block, s", "sent, MB", "by formula, MB", "in files, MB",
        "the Gram matrix, by formula, MB", "the same bits",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        rows, one = shelved(matrix, Path(place) / "rows"), None
        for count in counts:
            found = []
            for _ in range(fits):
                watched = Watched(Path(place) / "scratch")
                options = FitOptions(workers=watched, rows=rows, scratch=watched.folder)
                began = time.process_time()
                model = MODELS[name](MODELS[name].Settings(blocks=count)).fit(matrix, options)
                found.append((time.process_time() - began, watched))
            one, (took, watched) = one or model, min(found[1:], key=lambda fit: fit[0])
            within = np.reshape(watched.work, (-1, count)).sum(axis=0) if count > 1 else np.zeros(1)
            formula = sent(model, matrix.shape, count) / 1e6 if count > 1 else 0
            kept = gram_bytes(name, pairs, matrix.shape[1]) / 1e6 if count > 1 else 0
            cells = f"{took:.2f}", f"{within.sum():.2f}", f"{within.max():.2f}"
            bytes_ = (watched.taken + watched.given) / 1e6, formula, watched.most / 1e6, kept
            row(count, *cells, *(f"{number:.3f}" for number in bytes_), same_bits(one, model))


def same_bits(one: Model, other: Model) -> str:
    arrays = {"item_degrees": one.item_degrees, **one._arrays()}
    others = {"item_degrees": other.item_degrees, **other._arrays()}
    return "yes" if all(np.array_equal(array, others[name]) for name, array in arrays.items()) else "no"


def fit_from(name: str, folder: Path, count: int, megabytes: int) -> tuple[float, list[float], str]:
    """Fit in this process, with `count` blocks in as many others.

    Returns:
        The most megabytes that were resident here, and in each of the others; the sum of what was learned.
    """
    starts, items = (np.load(folder / f"{part}.npy", mmap_mode="r") for part in ("starts", "items"))
    ones = np.broadcast_to(np.int8(1), len(items))
    matrix = csr_matrix((ones, items, starts), shape=(len(starts) - 1, np.load(folder / "width.npy")))
    model, peaks = MODELS[name](MODELS[name].Settings(blocks=count)), {}
    if count == 1:
        model.fit(matrix)
    else:
        with processes(count, megabytes) as pool:
            model.fit(matrix, FitOptions(workers=Pool(pool), rows=Shelf(folder)))
            peaks = dict(one.result() for one in [pool.submit(most_resident, 0.2) for _ in range(4 * count)])
    weights = model.item_degrees if name == "popularity" else model.weights.data
    return most_resident()[1], [*peaks.values()], f"{weights.sum(dtype=float):.12g}"


class Killed:
    """Workers that are processes; one of them is killed at the call of a number, and what was lost is made again."""

    def __init__(self, count: int, at: int) -> None:
        self.count, self.at, self.calls, self.again = count, at, 0, 0
        self._begin()

    def _begin(self) -> None:
        self.pool = ProcessPoolExecutor(self.count, mp_context=get_context("spawn"))

    def map(self, function: Callable, calls: Sequence[tuple]) -> list:
        answers: dict[int, object] = {}
        while len(answers) < len(calls):
            missing = [place for place in range(len(calls)) if place not in answers]
            try:
                futures = [(place, self.pool.submit(function, *calls[place])) for place in missing]
                for place, future in futures:
                    answers[place] = future.result()
                    self._count()
            except BrokenProcessPool:
                self.again += 1
                self.close()
                self._begin()
        return [answers[place] for place in range(len(calls))]

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            os.kill(next(iter(self.pool._processes)), signal.SIGKILL)

    def close(self) -> None:
        """End all processes; of a pool that lost one, others may wait for a lock that it had."""
        for process in list((self.pool._processes or {}).values()):
            process.kill()
        self.pool.shutdown()


def report_killed(matrix: csr_matrix, name: str, blocks: int, times: int) -> None:
    draws, one = np.random.default_rng(1), MODELS[name]().fit(matrix)
    print(f"\n`{name}`, {blocks} blocks: {matrix.shape[0]:,} users, {matrix.shape[1]:,} items, {matrix.nnz:,} edges")
    head("processes", "killed at call", "rounds made again", "the bits of one machine")
    with tempfile.TemporaryDirectory() as place:
        rows = shelved(matrix, Path(place))
        for count in (1, 2, 7):
            for at in draws.integers(1, blocks * {"popularity": 1, "slim": 2, "mrf_sparse": 4}[name], times):
                workers = Killed(count, at)
                options = FitOptions(workers=workers, rows=rows, scratch=Path(place) / "scratch")
                model = MODELS[name](MODELS[name].Settings(blocks=blocks)).fit(matrix, options)
                workers.close()
                row(count, at, workers.again, same_bits(one, model))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=1_000_000, help="likes; there is a user for each 40")
    parser.add_argument("--items", type=int, default=4_000)
    parser.add_argument("--fit", nargs="+", default=["popularity", "slim", "mrf_sparse"], help="models")
    parser.add_argument("--part", nargs="+", choices=("costs", "memory", "killed"), default=["costs"])
    parser.add_argument("--blocks", nargs="+", type=int, default=[1, 4, 16], help="of costs; the first is compared to")
    parser.add_argument("--fits", type=int, default=4, help="of costs, for each number of blocks")
    parser.add_argument("--memory", type=int, default=600, help="MB that a process may have of its own")
    parser.add_argument("--times", type=int, default=1, help="that a process is killed, for each number of them")
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores as it begins")
    matrix = demo_graph(given.edges // 40, given.items, given.edges, 1)
    print(f"{matrix.shape[0]:,} users, {matrix.shape[1]:,} items, {matrix.nnz:,} edges")
    for name in given.fit:
        if "costs" in given.part:
            report_costs(matrix, name, given.blocks, given.fits)
        if "memory" in given.part:
            print(f"\n`{name}`: {matrix.shape[0]:,} users, {matrix.shape[1]:,} items, {matrix.nnz:,} edges")
            report_memory(matrix, partial(fit_from, name), 4, given.memory, "sum of the weights")
        if "killed" in given.part:
            report_killed(matrix, name, 7, given.times)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
