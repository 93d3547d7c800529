"""The random-graph model's nanoseconds an edge visit, phase by phase, beside what this machine could do.

    python -m benchmarks.speed.random_graph --likes 56000000 --users 480000 --items 17770

The graph is the demo's own, drawn in a process of its own so that peak memory is the model's alone. First
come whole iterations on --threads threads, in wall seconds with the CPU seconds beside them, since the
machine may be busy. Then phases are timed on one thread in CPU seconds, the least of --repeats. An edge
visit is one edge of the hidden graph H seen from one side. A pass, which is the draw of H and the updates of
item biases, users and items, is compared with bare gathers: fetching the packed row of the other end of
every edge of H once from either side, and nothing else. The roofline has, for a visit in a factor update:

    arithmetic   the floating-point operations that one visit cannot do without, at the better rate of a large
                 SGEMM and of a tile of multiply-adds that stays in registers
    vectors      the loads that the kernel makes of vectors and of numbers that multiply them, at two a cycle;
                 of a cycle this machine has as many as of dependent additions
    memory       fetching the cache lines of the other side's packed row, in the order of the graph
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_info, threadpool_limits

from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.adjacency import transpose
from oneclass.models.numerics.simd import F32_WIDTH, ROWS, pad_width
from oneclass.models.numerics.simd_tiles import add_outer
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.random_graph.inference import HiddenGraph, RandomGraphPosterior
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings

DRAW = """
import sys
import numpy as np
from oneclass.models.numerics.adjacency import transpose
from oneclass.tasks.demo.story import DemoSettings, simulate_likes

users, items, likes, seed = map(int, sys.argv[2:])
settings = DemoSettings(users=users, items=items, likes=likes)
story = simulate_likes(settings, seed)
starts = np.concatenate([[0], np.cumsum(story.liked)])[story.starts]
starts, columns = transpose(starts, story.users[story.liked], users)
np.save(sys.argv[1] + "/starts.npy", starts)
np.save(sys.argv[1] + "/items.npy", columns)
"""


def demo_graph(users: int, items: int, likes: int, seed: int) -> csr_matrix:
    """The demo's observed graph."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = map(str, (users, items, likes, seed))
        subprocess.run([sys.executable, "-c", DRAW, folder, *numbers], check=True)
        starts, columns = np.load(f"{folder}/starts.npy"), np.load(f"{folder}/items.npy")
    return csr_matrix((np.ones(len(columns), dtype=np.int8), columns, starts), shape=(users, items))


def operations(factors: int) -> int:
    """Floating-point operations of one edge visit of a factor update: additions and multiplications.

    Lower triangle of w x x' (K (K + 1)), variances on its diagonal (2 K), z (2 K), E a (2 K), var a (5 K),
    w x (K); lambda(xi) and the solution of one K x K system a vertex are not counted.
    """
    return factors * (factors + 1) + 12 * factors


def loads(factors: int) -> int:
    """Vectors, and numbers that multiply a vector, that `models.random_graph.edges` loads for one edge of an update."""
    width, lanes = pad_width(2 * factors + 4), range(0, factors, F32_WIDTH)
    moments = pad_width(factors + 2) + width - (factors + 2) // F32_WIDTH * F32_WIDTH
    tile = sum(pad_width(factors, 4) - lane + 5 for lane in lanes)  # with the edge's place, two weights and two vectors
    return moments // F32_WIDTH + tile


def least_seconds(work: Callable[[], object], repeats: int) -> float:
    """CPU seconds of the fastest call, after one that may compile."""
    work()
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


@njit
def _multiply_adds(target, left, right, count, rounds):
    for _ in range(rounds):
        add_outer(target, 0, F32_WIDTH, left, 0, ROWS, right, 0, F32_WIDTH, count)


@njit
def _fetch(table, width, neighbours):
    total = np.float32(0)
    for edge in range(len(neighbours)):
        at = np.int64(neighbours[edge]) * width
        for line in range(0, width, F32_WIDTH):
            total += table[at + line]
    return total


@njit
def _add_in_turn(count):
    total = 0
    for number in range(count):
        total = (total ^ number) + number  # two dependent operations of a cycle each
    return total


def cycles_a_nanosecond(repeats: int) -> float:
    """The processor's clock, GHz, while one core works."""
    return 2 * 20_000_000 / least_seconds(lambda: _add_in_turn(20_000_000), repeats) / 1e9


def arithmetic_rate(repeats: int) -> tuple[float, str]:
    """The best of two rates of one core, operations a nanosecond, and where it was met."""
    tile, left, right = (np.zeros(size, np.float32) for size in (ROWS * F32_WIDTH, ROWS * 64, F32_WIDTH * 64))
    seconds = least_seconds(lambda: _multiply_adds(tile, left, right, 64, 100_000), repeats)
    rates = {"register tile": 2 * ROWS * F32_WIDTH * 64 * 100_000 / seconds / 1e9}
    square = np.ones((1500, 1500), np.float32)
    with threadpool_limits(1, user_api="blas"):
        kernels = {info.get("architecture") for info in threadpool_info() if info["user_api"] == "blas"}
        rates[f"SGEMM, BLAS kernel {', '.join(map(str, kernels))}"] = (
            2 * 1500**3 / least_seconds(lambda: square @ square, repeats) / 1e9
        )
    where = max(rates, key=rates.get)
    return rates[where], where


def memory_floor(table: np.ndarray, factors: int, neighbours: np.ndarray, repeats: int) -> float:
    """Nanoseconds for the packed row of each neighbour in turn."""
    width = pad_width(2 * factors + 4)
    return 1e9 * least_seconds(lambda: _fetch(table, width, neighbours), repeats) / len(neighbours)


def phases(q: RandomGraphPosterior, sampler, graph: HiddenGraph) -> dict[str, tuple[Callable[[], object], int]]:
    """What to time, and how many edges (of H; of the negatives for the first two) it visits."""
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


PASS = ("draw negatives", "transpose them", "item biases", "users", "items")
JOINT_PASS = ("draw negatives", "transpose them", "users", "items and biases")


def report_phases(model: RandomGraph, matrix: csr_matrix, repeats: int) -> None:
    sampler = model.sampler(matrix)
    q, graph, factors = model.posterior, sampler.draw(1), model.settings.factors
    gathers = {
        "users": memory_floor(q.items.table(), factors, graph.likes[1], repeats),
        "items": memory_floor(q.users.table(), factors, graph.likes_by_item[1], repeats),
    }
    report_roofline(factors, gathers, repeats)
    seconds = {}
    for name, (work, visits) in phases(q, sampler, graph).items():
        seconds[name] = least_seconds(work, repeats)
        print(f"{name:20s}{1e9 * seconds[name] / visits:8.1f} ns a visit", flush=True)
    edges = len(graph.likes[1]) + len(graph.negatives[1])
    bare = edges * sum(gathers.values()) / 1e9
    for name, parts in (("Algorithm 1", PASS), ("joint block", JOINT_PASS)):
        taken = sum(seconds[part] for part in parts)
        print(f"{name}: a pass {taken:.3f} CPU s, {taken / bare:.1f} times bare gathers ({bare:.3f} s)", flush=True)


def report_roofline(factors: int, gathers: dict[str, float], repeats: int) -> None:
    """Print the bounds of one visit, ns; `gathers` are those of memory."""
    (rate, where), clock = arithmetic_rate(repeats), cycles_a_nanosecond(repeats)
    print(f"arithmetic {operations(factors) / rate:.1f} ns ({operations(factors)} at {rate:.0f} a ns, {where})")
    print(f"vectors {loads(factors) / 2 / clock:.1f} ns ({loads(factors)} loads, two a cycle of {clock:.2f} GHz)")
    for side, ns in gathers.items():
        lines = pad_width(2 * factors + 4) // F32_WIDTH
        print(f"memory of {side} {ns:.1f} ns ({lines} cache lines, {64 * lines / ns:.0f} GB/s)")


def report_iterations(matrix: csr_matrix, factors: int, threads: int, iterations: int, joint: bool) -> None:
    settings = RandomGraphSettings(factors=factors, iterations=iterations, joint_bias=joint, bound_every=0, t_tau=0)
    wall, cpu = [], [time.process_time()]

    def note(epoch):
        wall.append(epoch.seconds)
        cpu.append(time.process_time())

    RandomGraph(settings, threads=threads).fit(matrix, FitOptions(on_epoch=note))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{'joint block' if joint else 'Algorithm 1'}: an iteration {np.median(wall):.2f} wall s on "
        f"{threads} threads, {np.median(np.diff(cpu)[1:]):.2f} CPU s; peak memory {peak:.2f} GB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=60_000)
    parser.add_argument("--items", type=int, default=17_770)
    parser.add_argument("--likes", type=int, default=7_000_000)
    parser.add_argument("--factors", type=int, default=RandomGraphSettings().factors)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=4)
    arguments = parser.parse_args()
    matrix = demo_graph(arguments.users, arguments.items, arguments.likes, arguments.seed)
    print(f"{matrix.shape[0]} x {matrix.shape[1]}, {matrix.nnz} edges, K = {arguments.factors}")
    for joint in (False, True):
        report_iterations(matrix, arguments.factors, arguments.threads, arguments.iterations, joint)
    with kernel_threads(1):
        settings = RandomGraphSettings(factors=arguments.factors, iterations=2, bound_every=0)
        model = RandomGraph(settings).fit(matrix)
        report_phases(model, matrix, arguments.repeats)


if __name__ == "__main__":
    main()
