"""Paired symbols: nanoseconds an edge visit beside the floor of the machine, or ranks of held-out edges.

    python -m benchmarks.speed.paired_symbols --likes 56000000 --users 480000
    python -m benchmarks.speed.paired_symbols --ratings ../shared/data/ml-1m/ratings.csv

Without --ratings the graph is the demo's own. Whole passes are timed on --threads threads in wall and CPU
seconds, then a pass and its parts on one thread in CPU seconds, the least of --repeats. An edge visit is one
edge seen from one side. A pass, which is the updates of users and items, xi* and the bound, is compared with
bare gathers: fetching the row of the other end of every edge once from either side, and nothing else. The
roofline has, for a visit in an update:

    arithmetic   the floating-point operations that one visit cannot do without, at the better rate of a large
                 SGEMM and of a tile of multiply-adds that stays in registers
    vectors      the loads that the kernel makes of vectors and of numbers that multiply them, at two a cycle
    memory       fetching the cache lines of the other side's row, in the order of the graph

With --ratings, a CSV file of user_id,item_id,rating, one random edge (rating >= 4) of every user with two or
more is held out, and each score's mean rank S over users is printed: the share of the items outside the
training history that score strictly below the held-out one (eq. 12).
"""

import argparse
import resource
import time
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numba import njit
from scipy.sparse import csr_matrix

from benchmarks.speed.random_graph import arithmetic_rate, cycles_a_nanosecond, demo_graph, least_seconds
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.simd import F32_WIDTH, pad_width
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.paired_symbols.edges import COLUMN_UNIT
from oneclass.models.paired_symbols.model import PairedSymbols, PairedSymbolsSettings

LINE = 16  # float32 numbers in a cache line
RANKED = (
    {},
    {"iterations": 10},
    {"iterations": 40},
    {"r": 0.5},
    {"r": 2},
    {"r": 4},
    {"learn_selection": True},
    {"learn_selection": True, "iterations": 40},
)


def operations(factors: int) -> int:
    """Floating-point operations of one edge visit of a factor update: additions and multiplications.

    With n = K + 2, the length of y = (v, b, 1): upper triangle of w y y' (n (n + 1)), w y (n), w var (2 n),
    c y (2 n), E a (2 n), var a (5 n); lambda(xi) and the system of one vertex are not counted.
    """
    n = factors + 2
    return n * (n + 1) + 12 * n


@njit
def _fetch(rows, neighbours):
    total = np.float32(0)
    for edge in range(len(neighbours)):
        for line in range(0, rows.shape[1], LINE):
            total += rows[neighbours[edge], line]
    return total


def loads(factors: int) -> int:
    """Vectors, and numbers that multiply one, that `models.paired_symbols.edges` loads for one edge of an update."""
    n = factors + 2
    width = pad_width(n, COLUMN_UNIT)
    unit = width % F32_WIDTH
    tiles = [unit] * bool(unit) + [first + F32_WIDTH for first in range(unit, width, F32_WIDTH)]  # heights
    # In a tile each row is a number; the edge's place, its two weights and two vectors are loaded beside them.
    return 2 * width // F32_WIDTH + sum(height + 5 for height in tiles)


def report_phases(matrix: csr_matrix, factors: int, repeats: int) -> None:
    """A pass, the updates of users and items, and the sums over edges that xi* and the bound take, on one thread."""
    model = PairedSymbols(factors=factors)
    q = model._initial_posterior(matrix)
    q.iterate(learn_selection=False)
    (rate, where), clock = arithmetic_rate(repeats), cycles_a_nanosecond(repeats)
    print(f"arithmetic {operations(factors) / rate:.1f} ns ({operations(factors)} at {rate:.0f} a ns, {where})")
    print(f"vectors {loads(factors) / 2 / clock:.1f} ns ({loads(factors)} loads, two a cycle of {clock:.2f} GHz)")
    bare = 0.0
    for name, own, other in (("users", q.users, q.items), ("items", q.items, q.users)):
        gather, update, sums = (
            1e9 * least_seconds(partial(*work), repeats) / matrix.nnz
            for work in (
                (_fetch, other.rows, own.edges.indices),
                (q.update_factors, own, other),
                (own.edge_sums, other),
            )
        )
        bare += matrix.nnz * gather / 1e9
        print(
            f"{name}: memory {gather:.1f} ns ({4 * other.rows.shape[1] / gather:.0f} GB/s), update {update:.1f} ns, "
            f"sums over edges {sums:.1f} ns a visit",
            flush=True,
        )
    taken = least_seconds(partial(q.iterate, learn_selection=False), repeats)
    print(f"a pass {taken:.3f} CPU s, {taken / bare:.1f} times bare gathers ({bare:.3f} s)", flush=True)


def report_passes(matrix: csr_matrix, factors: int, threads: int, passes: int) -> None:
    wall, cpu = [], [time.process_time()]

    def note(epoch):
        wall.append(epoch.seconds)
        cpu.append(time.process_time())

    settings = PairedSymbolsSettings(factors=factors, iterations=passes)
    PairedSymbols(settings, threads=threads).fit(matrix, FitOptions(on_epoch=note))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    wall_seconds, cpu_seconds = np.median(wall), np.median(np.diff(cpu)[1:])
    print(
        f"a pass: {wall_seconds:.2f} wall s on {threads} threads, {cpu_seconds:.2f} CPU s; peak memory {peak:.2f} GB",
        flush=True,
    )


def held_out(ratings: Path, seed: int) -> tuple[csr_matrix, csr_matrix]:
    """(training, target) matrices: one random edge of each user with two or more is the target."""
    log = pl.read_csv(ratings).filter(pl.col("rating") >= 4)
    users, items = (np.unique(log[name], return_inverse=True)[1] for name in ("user_id", "item_id"))
    edges = csr_matrix((np.ones(len(users), dtype=np.float32), (users, items)))
    edges.sort_indices()
    degrees = np.diff(edges.indptr)
    places = edges.indptr[:-1] + (np.random.default_rng(seed).random(len(degrees)) * degrees).astype(int)
    target = np.zeros(edges.nnz, dtype=bool)
    target[places[degrees >= 2]] = True
    rows = np.repeat(np.arange(len(degrees)), degrees)
    return tuple(
        csr_matrix((edges.data[part], (rows[part], edges.indices[part])), shape=edges.shape)
        for part in (~target, target)
    )


def report_ranks(train: csr_matrix, target: csr_matrix, seed: int, threads: int, **settings: float) -> None:
    began = time.process_time()
    model = PairedSymbols(PairedSymbolsSettings(**settings), seed=seed, threads=threads).fit(train)
    seconds, means = time.process_time() - began, []
    for score in model.score_names:
        scores = model.scores(train, users=np.arange(train.shape[0]), score=score)
        with kernel_threads(threads):
            ranks = rank_targets(scores, train, target)
        candidates = ranks.candidates[np.diff(target.indptr) > 0]
        means.append(f"{score} {np.mean(ranks.worse / candidates):.4f}")
    print(f"{settings or 'defaults'}: {', '.join(means)}; {seconds:.1f} CPU s to fit", flush=True)


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--ratings", type=Path)
    parser.add_argument("--users", type=int, default=60_000)
    parser.add_argument("--items", type=int, default=17_770)
    parser.add_argument("--likes", type=int, default=7_000_000)
    parser.add_argument("--factors", type=int, default=PairedSymbolsSettings().factors)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--passes", type=int, default=4)
    arguments = parser.parse_args()
    if arguments.ratings:
        train, target = held_out(arguments.ratings, arguments.seed)
        print(f"{train.shape[0]} x {train.shape[1]}, {train.nnz} training edges, {target.nnz} held out")
        for settings in RANKED:
            report_ranks(train, target, arguments.seed, arguments.threads, **settings)
        return
    matrix = demo_graph(arguments.users, arguments.items, arguments.likes, arguments.seed)
    print(f"{matrix.shape[0]} x {matrix.shape[1]}, {matrix.nnz} edges, K = {arguments.factors}")
    report_passes(matrix, arguments.factors, arguments.threads, arguments.passes)
    with kernel_threads(1):
        report_phases(matrix, arguments.factors, arguments.repeats)


if __name__ == "__main__":
    main()
