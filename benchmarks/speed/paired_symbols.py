"""Measure the paired-symbols model's nanoseconds for an edge visit beside this machine's bounds.

    python -m benchmarks.speed.paired_symbols --likes 56000000 --users 480000

The graph is the demo's. Whole passes are timed on --threads threads in wall and CPU seconds, then a pass and its parts
on one thread in CPU seconds, the least of --repeats. An edge visit is one edge seen from one side. A pass, which
updates users, items, xi* and the bound, is compared with bare gathers: fetching the row of the other end of every edge
once from either side. The roofline is that of `benchmarks.speed.random_graph`.
"""

import argparse
from functools import partial

from scipy.sparse import csr_matrix

from benchmarks.speed.logs import simulate_demo_graph
from benchmarks.speed.roofline import measure_gather, print_core_bounds, report_iterations
from benchmarks.speed.timing import time_least
from oneclass.models.numerics.simd import F32_WIDTH, pad_width
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.paired_symbols.edges import COLUMN_UNIT
from oneclass.models.paired_symbols.model import PairedSymbols, PairedSymbolsSettings


def count_operations(factors: int) -> int:
    """Count the additions and multiplications of one edge visit of a factor update.

    With n = K + 2, the length of y = (v, b, 1): upper triangle of w y y' (n (n + 1)), w y (n), w var (2 n),
    c y (2 n), E a (2 n), var a (5 n); lambda(xi) and the system of one vertex are not counted.
    """
    n = factors + 2
    return n * (n + 1) + 12 * n


def count_loads(factors: int) -> int:
    """Count the vectors and multipliers that `models.paired_symbols.edges` loads for one edge of an update."""
    width = pad_width(factors + 2, COLUMN_UNIT)
    unit = width % F32_WIDTH
    heights = [unit] * bool(unit) + [first + F32_WIDTH for first in range(unit, width, F32_WIDTH)]
    # In a tile each row is a number; the edge's index, its two weights and two vectors are loaded beside them.
    return 2 * width // F32_WIDTH + sum(height + 5 for height in heights)


def report_phases(matrix: csr_matrix, factors: int, repeats: int) -> None:
    """Print the roofline, the updates and the sums over edges of both sides, and a pass, on one thread."""
    model = PairedSymbols(factors=factors)
    q = model._initial_posterior(matrix)
    q.iterate(learn_selection=False)
    print_core_bounds(count_operations(factors), count_loads(factors), repeats)
    bare = 0.0
    for name, own, other in (("users", q.users, q.items), ("items", q.items, q.users)):
        gather = measure_gather(other.rows, own.edges.indices, repeats)
        update, sums = (
            1e9 * time_least(work, 1 + repeats).cpu / matrix.nnz
            for work in (partial(q.update_factors, own, other), partial(own.edge_sums, other))
        )
        bare += matrix.nnz * gather / 1e9
        print(
            f"{name}: memory {gather:.1f} ns ({4 * other.rows.shape[1] / gather:.0f} GB/s), update {update:.1f} ns, "
            f"sums over edges {sums:.1f} ns a visit",
            flush=True,
        )
    cpu = time_least(partial(q.iterate, learn_selection=False), 1 + repeats).cpu
    print(f"a pass {cpu:.3f} CPU s, {cpu / bare:.1f} times bare gathers ({bare:.3f} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=60_000)
    parser.add_argument("--items", type=int, default=17_770)
    parser.add_argument("--likes", type=int, default=7_000_000)
    parser.add_argument("--factors", type=int, default=PairedSymbolsSettings().factors)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--passes", type=int, default=4)
    options = parser.parse_args()
    matrix = simulate_demo_graph(options.users, options.items, options.likes, seed=1)
    print(f"{matrix.shape[0]} x {matrix.shape[1]}, {matrix.nnz} edges, K = {options.factors}")
    settings = PairedSymbolsSettings(factors=options.factors, iterations=options.passes)
    report_iterations("passes", PairedSymbols(settings, threads=options.threads), matrix, options.threads)
    with kernel_threads(1):
        report_phases(matrix, options.factors, options.repeats)


if __name__ == "__main__":
    main()
