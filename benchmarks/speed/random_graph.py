"""Measure the random-graph model's nanoseconds for an edge visit, phase by phase, beside this machine's bounds.

    python -m benchmarks.speed.random_graph --likes 56000000 --users 480000 --items 17770

The graph is the demo's. First come whole iterations on --threads threads, in wall and CPU seconds, then phases on one
thread in CPU seconds, the least of --repeats. An edge visit is one edge of the hidden graph H seen from one side. A
pass, which draws H and updates item biases, users and items, is compared with bare gathers: fetching the packed row of
the other end of every edge of H once from either side. The roofline has, for a visit in a factor update:

    arithmetic   the floating-point operations that one visit needs, at the better rate of a large SGEMM and of a tile
                 of multiply-adds that stays in registers
    vectors      the kernel's loads of vectors and of numbers that multiply them, at two a cycle; the clock is measured
                 by dependent additions
    memory       fetching the cache lines of the other side's packed row, in the order of the graph
"""

import argparse
from collections.abc import Callable

from scipy.sparse import csr_matrix

from benchmarks.speed.logs import simulate_demo_graph
from benchmarks.speed.roofline import LINE_FLOATS, measure_gather, print_core_bounds, report_iterations
from benchmarks.speed.timing import time_least
from oneclass.models.numerics.adjacency import transpose
from oneclass.models.numerics.simd import F32_WIDTH, pad_width
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.random_graph.inference import HiddenGraph, RandomGraphPosterior
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings

PASSES = {
    "Algorithm 1": ("draw negatives", "transpose them", "item biases", "users", "items"),
    "joint block": ("draw negatives", "transpose them", "users", "items and biases"),
}


def row_width(factors: int) -> int:
    """Count the numbers of a packed row."""
    return pad_width(2 * factors + 4)


def count_operations(factors: int) -> int:
    """Count the additions and multiplications of one edge visit of a factor update.

    Lower triangle of w x x' (K (K + 1)), variances on its diagonal (2 K), z (2 K), E a (2 K), var a (5 K),
    w x (K); lambda(xi) and the solution of one K x K system a vertex are not counted.
    """
    return factors * (factors + 1) + 12 * factors


def count_loads(factors: int) -> int:
    """Count the vectors and multipliers that `models.random_graph.edges` loads for one edge of an update."""
    width, lanes = row_width(factors), range(0, factors, F32_WIDTH)
    moments = pad_width(factors + 2) + width - (factors + 2) // F32_WIDTH * F32_WIDTH
    tile = sum(pad_width(factors, 4) - lane + 5 for lane in lanes)  # with the edge's index, two weights and two vectors
    return moments // F32_WIDTH + tile


def list_phases(q: RandomGraphPosterior, sampler, graph: HiddenGraph) -> dict[str, tuple[Callable[[], object], int]]:
    """List the phases of a pass, each with the number of edges (of H; of the negatives for two) that it visits."""
    negatives, edges = len(graph.negatives[1]), len(graph.negatives[1]) + len(graph.likes[1])
    return {
        "draw negatives": (lambda: sampler.negatives(1), negatives),
        "transpose them": (lambda: transpose(*graph.negatives, len(sampler.weights)), negatives),
        "item biases": (lambda: q.update_item_biases(graph, 1.0), edges),
        "users": (lambda: q.update_users(graph, 1.0), edges),
        "items": (lambda: q.update_items(graph, 1.0), edges),
        "items and biases": (lambda: q.update_items(graph, 1.0, joint=True), edges),
        "bound": (lambda: q.bound(graph), edges),
    }


def report_phases(model: RandomGraph, matrix: csr_matrix, repeats: int) -> None:
    """Print the roofline, the nanoseconds of each phase, and the CPU seconds of a pass against bare gathers."""
    sampler = model.sampler(matrix)
    q, graph, factors = model.posterior, sampler.draw(1), model.settings.factors
    width = row_width(factors)
    gathers = {
        "users": measure_gather(q.items.table().reshape(-1, width), graph.likes[1], repeats),
        "items": measure_gather(q.users.table().reshape(-1, width), graph.likes_by_item[1], repeats),
    }
    print_core_bounds(count_operations(factors), count_loads(factors), repeats)
    for side, ns in gathers.items():
        lines = width // LINE_FLOATS
        print(f"memory of {side} {ns:.1f} ns ({lines} cache lines, {64 * lines / ns:.0f} GB/s)")
    seconds = {}
    for name, (work, visits) in list_phases(q, sampler, graph).items():
        seconds[name] = time_least(work, 1 + repeats).cpu
        print(f"{name:20s}{1e9 * seconds[name] / visits:8.1f} ns a visit", flush=True)
    edges = len(graph.likes[1]) + len(graph.negatives[1])
    bare = edges * sum(gathers.values()) / 1e9
    for name, parts in PASSES.items():
        cpu = sum(seconds[part] for part in parts)
        print(f"{name}: a pass {cpu:.3f} CPU s, {cpu / bare:.1f} times bare gathers ({bare:.3f} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=60_000)
    parser.add_argument("--items", type=int, default=17_770)
    parser.add_argument("--likes", type=int, default=7_000_000)
    parser.add_argument("--factors", type=int, default=RandomGraphSettings().factors)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=4)
    options = parser.parse_args()
    matrix = simulate_demo_graph(options.users, options.items, options.likes, seed=1)
    print(f"{matrix.shape[0]} x {matrix.shape[1]}, {matrix.nnz} edges, K = {options.factors}")
    for label, joint in (("Algorithm 1", False), ("joint block", True)):
        settings = RandomGraphSettings(
            factors=options.factors, iterations=options.iterations, joint_bias=joint, bound_every=0, t_tau=0
        )
        report_iterations(label, RandomGraph(settings, threads=options.threads), matrix, options.threads)
    with kernel_threads(1):
        settings = RandomGraphSettings(factors=options.factors, iterations=2, bound_every=0)
        model = RandomGraph(settings).fit(matrix)
        report_phases(model, matrix, options.repeats)


if __name__ == "__main__":
    main()
