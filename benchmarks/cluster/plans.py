"""What each model computes in a pass, what its machines tell each other, and what they must keep in memory.

Bytes are those of the numbers that a fit by blocks of users cannot do without, float32 where it is not said otherwise.
random_graph, mrf_sparse, slim and popularity are planned as they are built; the plans of the others are what their updates
allow: where an item's update is a sum over its users, blocks send their parts of that sum.

    random_graph    sums (K + 1)(K + 4) / 2 and the bias's 2 float64; back the items' q, 2 K + 2, in both exchanges
    paired_symbols  the same sums of an item's edges; back 2 K + 3; the background caches are sums over vertices, K + 2 squared
    hpf             K sums over an item's edges; back exp E log beta, K
    wmf             the right-hand sides, and in each step of conjugate gradients the products with them, K; back K
    spark_als       each user's factors once to every block of items that has one of his, and the other way round
    mrf_dense       the Gram matrix, items squared, half of it
    mrf_sparse, slim  each machine reads all edges, 4 bytes each, writes the rows of its items, 12 or 8 bytes an element, and reads
                      at most those of all items; disks are taken to be as quick as the links
    popularity      a count, 8 bytes

Spark's scheme is that of `benchmarks.cluster.als_messages`, with one block of users and one of items a machine.
"""

from dataclasses import dataclass
from math import ceil, inf

from benchmarks.cluster.als_messages import reached
from benchmarks.cluster.events import Exchange
from benchmarks.cluster.rates import Rates
from models.random_graph.messages import numbers

K = 20  # of the Bayesian models
WMF_K, CG_STEPS = 128, 3
NEIGHBOURS = 200  # of an item in the pattern of mrf_sparse; weights of slim are taken to be as many
MODELS = ("random_graph", "paired_symbols", "hpf", "wmf", "spark_als", "mrf_sparse", "slim", "mrf_dense", "popularity")
SHARDED_ALONE = ("spark_als",)


@dataclass(frozen=True)
class Size:
    """Of a log."""

    edges: float
    users: float
    items: float

    def pairs(self, rates: Rates) -> float:
        """Pairs of items that users have both of, where degrees are as unequal as in the measured graph."""
        return self.edges**2 / self.users * rates.skew / 2

    def gram_bytes(self, model: str, rates: Rates) -> float:
        """The Gram matrix of mrf_sparse or slim in files, where no two users have the same pair, or every pair occurs."""
        return (8 if model == "slim" else 12) * min(self.items**2, 2 * self.pairs(rates))


@dataclass(frozen=True)
class Memory:
    """Bytes that each machine needs, and bytes that machines share out."""

    each: float
    shared: float

    def machines(self, memory: float) -> float:
        """The least number of machines with so many bytes; infinite where none suffices."""
        return inf if self.each >= memory else ceil(self.shared / (memory - self.each))


def plan(model: str, size: Size, rates: Rates, machines: int) -> list[Exchange]:
    """The exchanges of a pass; of a model without passes, of its fit."""
    if model == "random_graph":
        return random_graph(size, rates)
    if model in ("paired_symbols", "hpf", "wmf", "spark_als"):
        return _alternating(model, size, rates, machines)
    return _once(model, size, rates, machines)


def random_graph(size: Size, rates: Rates) -> list[Exchange]:
    """The two exchanges of Algorithm 1 with biases updated by themselves; negatives are drawn in each."""
    blocks, q = rates.blocks, 4 * (2 * K + 2)
    sizes = [(q, 16), (q, 4 * numbers(K))]
    whole = sum(map(sum, sizes))
    return [
        Exchange(
            down=down * size.items,
            up=up * size.items,
            work=float(blocks.edge[part] * size.edges + blocks.user[part] * size.users),
            own=float(blocks.item_of_block[part] * size.items),
            handling=float(blocks.handled * size.items * (down + up) / whole),
            update=float(blocks.update * size.items * part),
        )
        for part, (down, up) in enumerate(sizes)
    ]


def _alternating(model: str, size: Size, rates: Rates, machines: int) -> list[Exchange]:
    edge, vertex = rates.passes["wmf" if model == "spark_als" else model]
    if model == "spark_als":
        return [_half_of_als(size, rates, side, machines) for side in (size.users, size.items)]
    work = edge * size.edges + vertex * size.users
    update = vertex * size.items
    rounds, up, down = {
        "paired_symbols": (1, 4 * numbers(K), 4 * (2 * K + 3)),
        "hpf": (1, 4 * K, 4 * K),
        "wmf": (1 + CG_STEPS, 4 * WMF_K, 4 * WMF_K),
    }[model]
    handling = rates.handled_byte * (up + down) * size.items
    one = Exchange(down * size.items, up * size.items, work / rounds, 0.0, handling, update / rounds)
    return [one] * rounds


def _half_of_als(size: Size, rates: Rates, vertices: float, machines: int) -> Exchange:
    """One side's vectors are computed and sent to the blocks of the other."""
    edge, vertex = rates.passes["wmf"]
    sent = 4 * WMF_K * vertices * reached(size.edges / vertices, machines) / machines
    return Exchange(up=sent, work=edge * size.edges / 2 + vertex * vertices, handling=rates.handled_byte * sent)


def _once(model: str, size: Size, rates: Rates, machines: int) -> list[Exchange]:
    pairs = size.pairs(rates)
    if model == "popularity":
        up = 8 * size.items
        return [Exchange(up=up, work=rates.counted * size.edges, handling=rates.handled_byte * up)]
    if model == "mrf_dense":
        up = 4 * size.items**2 / 2
        update = rates.cube * size.items**3
        return [Exchange(up=up, work=rates.pair * pairs, handling=rates.handled_byte * up, update=update)]
    pair, edge = rates.rows[model]
    gram, found = size.gram_bytes(model, rates), 8 * NEIGHBOURS * size.items / machines
    return [
        Exchange(down=4 * size.edges),  # nothing is added
        Exchange(up=gram / machines, work=pair * pairs, own=edge * size.edges),
        Exchange(down=gram),
        Exchange(up=found, work=rates.own[model] * size.items, handling=rates.handled_byte * found),
    ]


def memory(model: str, size: Size, rates: Rates, machines: int = 1) -> Memory:
    """What machines hold while they fit.

    An edge is an item of a user and a user of an item, 4 bytes each, with 4 of a count where the model has counts;
    random_graph holds those of the hidden graph, twice as many, beside G. Users' parameters are held old and new. What lies
    in files is not held.
    """
    edges, users, items = size.edges, size.users, size.items
    q, sums = 4 * (2 * K + 2), 4 * numbers(K)
    both = reached(edges / users, machines) / machines
    each, shared = {
        "random_graph": ((q + 3 * sums) * items, 20 * edges + 2 * q * users),  # the sum is float64
        "paired_symbols": ((q + 3 * sums) * items, 16 * edges + 2 * q * users),
        "hpf": (4 * 5 * K * items, 8 * edges + 4 * 3 * K * users),
        "wmf": (4 * 5 * WMF_K * items, 16 * edges + 4 * WMF_K * users),
        "spark_als": (4 * WMF_K * (items + both * users), 16 * edges + 4 * WMF_K * users),
        "mrf_dense": (4 * items**2, 4 * edges),
        "mrf_sparse": (12 * NEIGHBOURS * items, 24 * edges),  # one block's edges, with their weights, and the run's
        "slim": (8 * NEIGHBOURS * items, 24 * edges),
        "popularity": (8 * items, 4 * edges),
    }[model]
    return Memory(each, shared)
