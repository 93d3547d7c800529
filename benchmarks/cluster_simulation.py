"""How far it would go: a pass of each model on a simulated cluster, and where each model's wall is.

    python -m benchmarks.cluster_simulation [--edges 1e9 1e10] [--users 1e8] [--items 1e6] [--bandwidth 1.25e9]
                                            [--latency 1e-3] [--cores 32] [--memory 256e9]

First short fits on this machine measure what an edge, a user, an item of a block and a byte of a message cost in CPU seconds
of one thread (`benchmarks.cluster.rates`). Then the check: a graph that these fits did not have is fitted by 1 to 16 blocks
here in the same rounds, and simulated with the measured rates as one machine of one thread; nothing is fitted to it. Last come
the tables:
seconds of a pass at 1 to 1024 machines, with one coordinator that adds (star) and with the items cut over the machines
(sharded), by `benchmarks.cluster.events`. Bandwidth, latency, cores and memory are assumed: no such cluster was there.
"""

import argparse
import os
from math import inf, isinf, isqrt

from scipy.sparse import csr_matrix

from benchmarks.cluster.als_messages import counted, vectors
from benchmarks.cluster.events import Cluster, Took, sharded, star
from benchmarks.cluster.plans import MINIBATCH, MODELS, SHARDED_ALONE, K, Size, memory, plan, random_graph, travels
from benchmarks.cluster.rates import Fit, Rates, measured
from benchmarks.posted import head, row

MACHINES = [2**power for power in range(11)]
CHECKED = (1, 2, 4, 8, 16)
CHECK = 25_000, 4_000, 1_000_000  # users, items, edges
NETFLIX_USERS, NETFLIX_ITEMS = 471_012, 17_770
HELPS = 0.05
AN_ITEM = sum(map(sum, travels("random_graph", 1)))  # bytes of random_graph's messages, for each item and block


def show_rates(rates: Rates) -> None:
    head(
        "CPU seconds of one thread", "an edge", "a user", "an item of a block", "handled, an item of a block", "update"
    )
    blocks = rates.blocks
    for name, part in (("random_graph, biases", 0), ("random_graph, factors", 1)):
        of_part = (f"{rate[part]:.2e}" for rate in (blocks.edge, blocks.user, blocks.item_of_block))
        row(name, *of_part, *((f"{blocks.handled:.2e}", f"{blocks.update:.2e}") if part else ("", "")))
    for name, (edge, vertex) in rates.passes.items():
        row(name, f"{edge:.2e}", f"{vertex:.2e}", "", "", f"{vertex:.2e}")
    one = rates.minibatch
    row(
        "binary_matrix, a minibatch",
        *(f"{rate:.2e}" for rate in (one.edge, one.user, one.item_of_block, one.handled, one.update)),
    )
    row("popularity", f"{rates.counted:.2e}", "", "", "", "")
    row("mrf_dense: a pair of a user's items", f"{rates.pair:.2e}", "", "", "", f"{rates.cube:.2e} x items^3")
    for name, item in rates.own.items():
        row(f"{name}: an item, beside the pairs", "", "", "", "", f"{item:.2e}")
    for name, (pair, edge) in rates.rows.items():
        print(f"\n{name}, by runs of items: a pair {pair:.2e} s, an edge that a run reads {edge:.2e} s")
    print(f"\nbinary_matrix: an entry {one.entry:.2e} s, and in each block, to see whose it is, {one.drawn:.2e} s")
    judged = rates.judging
    print(
        f"\nevaluation, wmf: a score made and ranked {judged.score:.2e} s; {judged.user:.0f} bytes a user, {judged.item:.0f} an item and call"
    )
    print(f"\na byte handled {rates.handled_byte:.2e} s; mean square of degrees over square of mean {rates.skew:.2f}")


def show_check(rates: Rates, made: list[Fit]) -> None:
    """random_graph by blocks in this process, and simulated as one machine of one thread."""
    matrix = made[0].matrix
    print(f"\ncheck: {matrix.shape[0]:,} users, {matrix.shape[1]:,} items, {matrix.nnz:,} edges, in one process")
    head("blocks", "measured, s", "in messages, s", "simulated, s", "in messages, s", "simulated / measured")
    exchanges = random_graph(Size(matrix.nnz, *matrix.shape), rates)
    for fit in made:
        took = star(Cluster(), exchanges, fit.blocks, machines=1).seconds
        messages = sum(fit.blocks * one.handling + one.update for one in exchanges)
        seen = fit.inside.sum() + fit.beside
        row(fit.blocks, f"{seen:.3f}", f"{fit.beside:.3f}", f"{took:.3f}", f"{messages:.3f}", f"{took / seen:.2f}")


def passes(model: str, size: Size, rates: Rates, cluster: Cluster, way: str, machines: int) -> Took:
    exchanges = plan(model, size, rates, machines)
    return star(cluster, exchanges, machines) if way == "star" else sharded(cluster, exchanges, machines)


def shown(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 100 else f"{seconds:,.0f}"


def show_model(model: str, size: Size, rates: Rates, cluster: Cluster) -> list[tuple]:
    """Its line of the table, for each way; returns the lines of the summary."""
    lines = []
    for way in ("star", "sharded"):
        if way == "star" and model in SHARDED_ALONE:
            continue
        took = {machines: passes(model, size, rates, cluster, way, machines) for machines in MACHINES}
        row(model, way, *(shown(one.seconds) for one in took.values()))
        lines.append((model, way, took))
    return lines


def last_that_helps(model: str, size: Size, rates: Rates, cluster: Cluster, way: str) -> int:
    """The machines past which one more takes off less than `HELPS` of a pass."""
    machines, before = 1, passes(model, size, rates, cluster, way, 1).seconds
    while (after := passes(model, size, rates, cluster, way, machines + 1).seconds) < (1 - HELPS) * before:
        machines, before = machines + 1, after
    return machines


def quickest_of(took: dict[int, Took], model: str, size: Size, rates: Rates, cluster: Cluster, way: str) -> int:
    """The machines past which one more makes a pass longer; the most of the tables where none does."""
    best = min(MACHINES, key=lambda machines: took[machines].seconds)
    if best == MACHINES[-1]:
        return best
    return min(range(max(1, best // 2), 2 * best), key=lambda n: passes(model, size, rates, cluster, way, n).seconds)


def show_walls(lines: list[tuple], size: Size, rates: Rates, cluster: Cluster, most: float) -> None:
    head(
        "model", "way", "bytes, one machine's of a pass", "machines for memory", f"one more helps by {HELPS:.0%} up to",
        "half used up to", "quickest at", f"wall at {MACHINES[-1]}", "busy there",
    )  # fmt: skip
    for model, way, took in lines:
        fewest = fewest_for_memory(model, size, rates, most)
        sent = sum(one.up + one.down for one in plan(model, size, rates, MACHINES[-1]))
        quickest = quickest_of(took, model, size, rates, cluster, way)
        used = max(machines for machines in MACHINES if took[1].seconds / took[machines].seconds >= machines / 2)
        at = took[MACHINES[-1]]
        row(
            model, way, f"{sent / 1e9:.3g} GB" if sent < 1e12 else f"{sent / 1e9:,.0f} GB", "none suffice" if isinf(fewest) else fewest,
            last_that_helps(model, size, rates, cluster, way), used, quickest, at.wall,
            f"{at.busy[at.wall] / at.seconds:.0%}",
        )  # fmt: skip
    print(
        f"\nmrf_dense: a float32 number for each pair of items fills {most / 1e9:.0f} GB at {isqrt(int(most / 4)):,} items"
    )


def fewest_for_memory(model: str, size: Size, rates: Rates, most: float) -> float:
    """The least machines, of those in the tables, each of which holds what it must; infinite if none."""
    fitting = (one for one in MACHINES if memory(model, size, rates, one).machines(most) <= one)
    return next(fitting, inf)


def show_messages(matrix: csr_matrix) -> None:
    """What random_graph's blocks and the blocks of Spark's ALS send in a pass, both with K factors, on the check's graph."""
    head("blocks", "random_graph, MB", "ALS, vectors counted", "ALS, MB", "by the formula of mean degrees, MB")
    for blocks in CHECKED:
        sent = counted(matrix, blocks)
        formula = vectors(matrix.nnz, *matrix.shape, blocks)
        row(
            blocks,
            f"{blocks * matrix.shape[1] * AN_ITEM / 1e6:.2f}",
            f"{sent:,}",
            *(f"{4 * K * one / 1e6:.2f}" for one in (sent, formula)),
        )


def show_messages_far(size: Size) -> None:
    """The same at the simulated size, by the formulas, in gigabytes of all machines together."""
    head("sent in a pass, GB, all machines", *MACHINES)
    row("random_graph, K = 20", *(f"{machines * size.items * AN_ITEM / 1e9:,.1f}" for machines in MACHINES))
    als = (4 * K * vectors(size.edges, size.users, size.items, machines) for machines in MACHINES)
    row("Spark's ALS, K = 20", *(f"{sent / 1e9:,.1f}" for sent in als))


def show_netflix(rates: Rates) -> None:
    """CPU seconds of a pass by these rates at the sizes whose times stand in docs/performance.md."""
    head("CPU seconds by these rates, Netflix's size", "an iteration or sweep")
    size = Size(46e6, NETFLIX_USERS - 80_000, NETFLIX_ITEMS)
    row("random_graph, 46 million edges", f"{sum(one.work for one in random_graph(size, rates)):.1f}")
    for name in ("wmf", "paired_symbols"):
        edge, vertex = rates.passes[name]
        row(f"{name}, 56 million edges", f"{edge * 56e6 + vertex * (NETFLIX_USERS + NETFLIX_ITEMS):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=float, nargs="+", default=[1e9, 1e10])
    parser.add_argument("--users", type=float, default=1e8)
    parser.add_argument("--items", type=float, default=1e6)
    parser.add_argument(
        "--bandwidth", type=float, default=10e9 / 8, help="of a machine's link, bytes a second each way"
    )
    parser.add_argument("--latency", type=float, default=1e-3, help="seconds")
    parser.add_argument("--cores", type=int, default=32, help="of a machine, each as fast as one here")
    parser.add_argument("--memory", type=float, default=256e9, help="of a machine, bytes")
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores as it begins")
    rates, made = measured(AN_ITEM, [(*CHECK, blocks) for blocks in CHECKED])
    show_rates(rates)
    show_check(rates, made)
    show_netflix(rates)
    show_messages(made[0].matrix)
    cluster = Cluster(given.bandwidth, given.latency, given.cores)
    for edges in given.edges:
        size = Size(edges, given.users, given.items)
        print(
            f"\n{edges:.0e} edges, {given.users:.0e} users, {given.items:.0e} items: seconds of a pass, of a fit, "
            f"or of a minibatch of {MINIBATCH:,} entries"
        )
        head("model", "way", *MACHINES)
        lines = [line for model in MODELS for line in show_model(model, size, rates, cluster)]
        show_walls(lines, size, rates, cluster, given.memory)
        show_messages_far(size)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
