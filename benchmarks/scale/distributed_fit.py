"""Blocks of users in the random-graph model: what travels, what it costs, how it converges, and what memory it needs.

    python -m benchmarks.scale.distributed_fit [--edges 2000000] [--part travel convergence memory]

The graph is the demo's own. `travel` fits by 1 to 16 blocks in this process; every call and answer is pickled and read
back as if it went to another, and that time, with the sums and the items' update, stands as messages against the work
within the calls. `convergence` has the bound and S of held-out edges against iterations, for one machine, for blocks
that are all fresh and for blocks in turns. `memory` fits once as one and once by blocks, each in processes of their
own, which may have no more than a stated memory of their own (RLIMIT_DATA). Times are CPU seconds, those of `travel` of
one thread; even so an idle machine gives better ones.
"""

import argparse
import multiprocessing
import os
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.scale.pickled_calls import Posted, Shelf, head, row, shelved
from benchmarks.speed.random_graph import demo_graph
from oneclass.models.evaluation.holdout import choose_held_out_edges, split_matrix
from oneclass.models.evaluation.metrics import Mean, average_over_users, compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.random_graph.blocks import start_distributed_fit
from oneclass.models.random_graph.inference import step_sizes
from oneclass.models.random_graph.messages import message_size
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from oneclass.models.random_graph.worker import BlockConfig

WATCHED = (1, 2, 3, 5, 8, 12, 20, 30, 40)
RANKED = 5_000  # users
WEIGHED = 3  # iterations of the table of memory
SCORES = "popularity_x_odds", "like"


def report_travel(matrix: csr_matrix, iterations: int) -> None:
    for joint in (False, True):
        settings, ends = RandomGraphSettings(bound_every=0, t_tau=0, iterations=iterations, joint_bias=joint), []
        model = RandomGraph(settings)
        model.fit(matrix, FitOptions(on_epoch=lambda _, ends=ends: ends.append(time.process_time())))
        print(f"\n`joint_bias = {str(joint).lower()}`; one machine: an iteration {np.diff(ends).min():.2f} s")
        head(
            "blocks", "an iteration, s", "calls, s", "the longest block, s", "messages, s", "sent, MB", "by formula, MB"
        )
        for count in (1, 2, 4, 8, 16):
            report_blocks(matrix, model, settings.model_copy(update={"blocks": count}))


def report_blocks(matrix: csr_matrix, model: RandomGraph, settings: RandomGraphSettings) -> None:
    """A line of the table: of the quickest iteration after the first, which other work on the machine slowed least."""
    seconds, calls, longest, sent = [], [], [], 0
    exchanges = 1 if settings.joint_bias else 2
    with tempfile.TemporaryDirectory() as folder, kernel_threads(1):
        q = model._initial_posterior(matrix.shape, None)
        options = FitOptions(workers=(posted := Posted()), rows=shelved(matrix, Path(folder)))
        with start_distributed_fit(BlockConfig(settings, 0, 1), q, model.weights, matrix, options) as posterior:
            for t, step in enumerate(step_sizes(settings.iterations, settings.t_epsilon), start=1):
                posted.__init__()
                began = time.process_time()
                posterior.iterate(t, step)
                seconds.append(time.process_time() - began)
                calls.append(sum(posted.work))
                longest.append(np.reshape(posted.work, (exchanges, -1)).sum(axis=0).max())
                sent = posted.taken + posted.given
    K = settings.factors
    an_item = exchanges * 4 * (2 * K + 2) + 4 * message_size(K) + (0 if settings.joint_bias else 16)
    best = 1 + int(np.argmin(seconds[1:]))
    took, within, most = (values[best] for values in (seconds, calls, longest))
    formula = len(posterior.blocks) * matrix.shape[1] * an_item
    cells = (f"{took:.2f}", f"{within:.2f}", f"{most:.2f}", f"{took - within:.3f}", f"{sent / 1e6:.3f}")
    row(len(posterior.blocks), *cells, f"{formula / 1e6:.3f}")


def report_convergence(matrix: csr_matrix, threads: int, count: int) -> None:
    ones = (np.diff(matrix.indptr) > 1).astype(np.int64)
    train, targets = split_matrix(
        matrix, choose_held_out_edges(matrix, ones, 1, *(np.arange(size) for size in matrix.shape))
    )
    ranked = np.flatnonzero(ones)[:RANKED]
    modes = {
        "one machine": {},
        f"{count} blocks, all fresh": {"blocks": count},
        f"{count} blocks, two at a turn": {"blocks": count, "refreshed": 2},
        f"{count} blocks, one at a turn": {"blocks": count, "refreshed": 1},
    }
    seen = {name: Watched(train, targets, ranked).fit(threads, more) for name, more in modes.items()}
    head("bound, nats an edge of H", *modes)
    for place, t in enumerate(WATCHED):
        row(t, *(f"{fit.bounds[place]:.5f}" for fit in seen.values()))
    for score in SCORES:
        head(f"S of `{score}`", *modes)
        for place, t in enumerate(WATCHED):
            row(t, *(f"{fit.ranks[score][place].value:.5f}" for fit in seen.values()))
        row("standard error", *(f"{fit.ranks[score][-1].standard_error:.5f}" for fit in seen.values()))
    row("CPU s of the fit, a bound in each iteration", *(f"{fit.seconds:.0f}" for fit in seen.values()))
    one = seen["one machine"].items
    apart = [np.abs(fit.items - one).max() / np.abs(one).max() for fit in seen.values()]
    row("items' means from one machine's, of the largest", *(f"{share:.1e}" for share in apart))


@dataclass
class Watched:
    """A fit whose bound and ranks are looked at on the way; `items` are the items' means at its end."""

    train: csr_matrix
    targets: csr_matrix
    ranked: np.ndarray
    bounds: list[float] = field(default_factory=list)
    ranks: dict[str, list[Mean]] = field(default_factory=lambda: {score: [] for score in SCORES})
    seconds: float = 0.0
    items: np.ndarray | None = None

    def fit(self, threads: int, more: dict) -> Self:
        settings = RandomGraphSettings(iterations=max(WATCHED), bound_every=1, tolerance=0, **more)
        model, began = RandomGraph(settings, threads=threads), time.process_time()

        def look(epoch: Epoch) -> None:
            nonlocal began
            self.seconds += time.process_time() - began
            if epoch.number in WATCHED:
                self.bounds.append(epoch.values["bound"] / (2 * self.train.nnz))
                self.rank(model)
            began = time.process_time()

        self.items = model.fit(self.train, FitOptions(on_epoch=look)).posterior.items.mean
        return self

    def rank(self, model: RandomGraph) -> None:
        users, histories = self.ranked, self.train[self.ranked]
        for score, found in self.ranks.items():
            scores = model.scores(histories, users=users, score=score)
            found.append(
                average_over_users(compute_user_metrics(rank_targets(scores, histories, self.targets[users])))[
                    "mean_rank"
                ]
            )


def limited(megabytes: int) -> None:
    """Let this process have no more memory of its own from now on; 0 for no limit."""
    if megabytes:
        resource.setrlimit(resource.RLIMIT_DATA, (megabytes * 1_000_000,) * 2)


def most_resident(wait: float = 0.0) -> tuple[int, float]:
    """This process, and the most megabytes that it had resident, pages of mapped files among them."""
    time.sleep(wait)
    status = Path("/proc/self/status").read_text()
    return os.getpid(), int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1e3


@contextmanager
def processes(count: int, megabytes: int) -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=limited, initargs=(megabytes,)) as pool:
        yield pool


class Pool:
    """Workers that are processes."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self.pool = pool

    def map(self, function: Callable, calls: Sequence[tuple]) -> list:
        return [future.result() for future in [self.pool.submit(function, *call) for call in calls]]


def fit_from(folder: Path, count: int, megabytes: int) -> tuple[float, list[float], str]:
    """Fit in this process, with `count` blocks in as many others.

    Returns:
        The most megabytes that were resident here, and in each of the others; the mean of |E v|.
    """
    starts, items = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("starts", "items"))
    ones = np.ones(len(items), dtype=np.int8)
    matrix = csr_matrix((ones, items, starts), shape=(len(starts) - 1, np.load(folder / "width.npy")))
    model = RandomGraph(RandomGraphSettings(iterations=WEIGHED, bound_every=0, blocks=count))
    if count == 1:
        model.fit(matrix)
        peaks = {}
    else:
        with processes(count, megabytes) as pool:
            model.fit(matrix, FitOptions(workers=Pool(pool), rows=Shelf(folder)))
            peaks = dict(one.result() for one in [pool.submit(most_resident, 0.2) for _ in range(4 * count)])
    return most_resident()[1], [*peaks.values()], f"{np.abs(model.posterior.items.mean).mean():.6f}"


def report_memory(
    matrix: csr_matrix,
    fit: Callable[[Path, int, int], tuple[float, list[float], str]],
    count: int,
    megabytes: int,
    learned: str,
) -> None:
    """The table of a fit as one and by `count` blocks, without a limit and with one.

    Args:
        fit: a module's own, as `fit_from`; learned: what the last of its values is.
    """
    head("fit", "memory of its own, MB", "most resident, MB", "of each worker, MB", learned)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shelved(matrix, folder)
        shelved(csr_matrix(np.eye(10)), few := folder / "few")
        for what, where, blocks, limit in (
            ("ten edges: the program itself", few, 1, 0),
            ("all users as one", folder, 1, 0),
            ("all users as one", folder, 1, megabytes),
            (f"{count} blocks", folder, count, megabytes),
        ):
            allowed = f"at most {limit}" if limit else "as it likes"
            with processes(1, limit) as pool:
                try:
                    here, peaks, found = pool.submit(fit, where, blocks, limit).result()
                    row(what, allowed, f"{here:.0f}", ", ".join(f"{peak:.0f}" for peak in peaks), found)
                except (MemoryError, BrokenProcessPool) as error:
                    row(what, allowed, f"ended by {type(error).__name__}", "", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=2_000_000, help="likes; there is a user for each 40")
    parser.add_argument("--items", type=int, default=4_000)
    parser.add_argument("--blocks", type=int, default=8, help="of the table of convergence")
    parser.add_argument("--iterations", type=int, default=9, help="of the table of what travels")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-edges", type=int, default=12_000_000)
    parser.add_argument("--memory", type=int, default=600, help="MB that a process may have of its own")
    parser.add_argument("--part", nargs="+", choices=("travel", "convergence", "memory"), help="all by default")
    given = parser.parse_args()
    parts = given.part or ("travel", "convergence", "memory")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores as it begins; {sys.platform}")
    if "travel" in parts or "convergence" in parts:
        matrix = demo_graph(given.edges // 40, given.items, given.edges, 1)
        print(
            f"{matrix.shape[0]:,} users, {matrix.shape[1]:,} items, {matrix.nnz:,} edges, K = "
            f"{RandomGraphSettings().factors}"
        )
    if "travel" in parts:
        report_travel(matrix, given.iterations)
    if "convergence" in parts:
        report_convergence(matrix, given.threads, given.blocks)
    if "memory" in parts:
        large = demo_graph(given.memory_edges // 40, given.items, given.memory_edges, 1)
        sizes = f"{large.shape[0]:,} users, {large.shape[1]:,} items, {large.nnz:,} edges"
        print(f"\n{sizes}, {WEIGHED} iterations")
        report_memory(large, fit_from, 4, given.memory, "mean of abs(E v)")
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
