"""What each model computes in a pass, what its machines tell each other, and what they must keep in memory.

What travels is what the fits by blocks of users, and by runs of items, say of themselves (`sizes_by_blocks`), without their few
numbers that no item or edge has. Sharded it would be the same bytes; of the scheme of Spark's ALS nothing is built.

    random_graph    back 2 float64 of the bias, then sums (K + 1)(K + 4) / 2; there the items' q, 2 K + 2, in both exchanges
    paired_symbols  back the same sums of an item's edges; there its row; and again the row, for xi* and the bound
    hpf             back K sums over an item's edges; there exp E log beta, K
    wmf             back the residuals, and in each step of conjugate gradients the products with a direction, K; there K
    binary_matrix   of a minibatch, as large as `most_batch`: back 4 K + 3 sums of an item's entries; there its row
    spark_als       each user's factors once to every block of items that has one of his, and the other way round
    mrf_dense       the Gram matrix in float64, in stripes of rows up to each one's last column
    mrf_sparse, slim  each machine reads all edges, 4 bytes each, writes the rows of its items, 12 or 8 bytes an element, and reads
                      at most those of all items; disks are taken to be as quick as the links
    popularity      a count, 8 bytes
    evaluation      of all users by wmf: each machine reads the model and its users' edges; a call of 2,048 users answers some numbers
                    a user and a count an item

The work is what one machine does in a pass, but for random_graph, binary_matrix and the runs of items, whose work is that of their
calls; all of a pass's is counted with the first exchange of paired_symbols, and evenly with those of wmf.
Spark's scheme is that of `benchmarks.cluster.als_messages`, with one block of users and one of items a machine.
"""

from dataclasses import dataclass
from math import ceil, inf

from benchmarks.cluster.als_messages import reached
from benchmarks.cluster.events import Exchange
from benchmarks.cluster.rates import Rates
from models.binary_matrix.settings import BYTES_OF_ENTRY
from models.catalogue import MODELS as FITTED
from models.memory import users_at_once
from models.mrf.dense_blocks import AT_ONCE
from models.user_blocks import Sizes
from tasks.evaluate.calls import USERS_OF_A_CALL

K = 20  # of the Bayesian models
WMF_K, CG_STEPS = 128, 3
MINIBATCH = FITTED["binary_matrix"].Settings().most_batch  # entries
NEIGHBOURS = 200  # of an item in the pattern of mrf_sparse; weights of slim are taken to be as many
MODELS = (
    "random_graph", "paired_symbols", "hpf", "wmf", "binary_matrix", "spark_als", "mrf_sparse", "slim", "mrf_dense",
    "popularity", "evaluation",
)  # fmt: skip
OF_SIZES = {"random_graph": 20, "paired_symbols": 16, "binary_matrix": 24}  # bytes of an edge; the rest as they say
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


def sizes(model: str, items: float) -> Sizes:
    """What a fit by blocks says of itself, at the K of these tables."""
    kind = FITTED[model].Settings
    factors = {"factors": WMF_K if model == "wmf" else K} if "factors" in kind.model_fields else {}
    steps = {"cg_steps": CG_STEPS} if model == "wmf" else {}
    return kind(**factors, **steps, blocks=2).sizes_by_blocks(int(items), 0)


def travels(model: str, items: float, machines: int = 1) -> list[tuple[float, float]]:
    """Bytes that a block is sent and answers in each exchange of a pass; of a minibatch, or of a fit, without passes."""
    if model == "mrf_dense":
        height = max(1.0, AT_ONCE // (8 * items * machines))  # of a stripe
        return [(0.0, 4 * items * (items + height))]
    of = sizes(model, items)
    if model == "random_graph":
        return [(of.items, 16 * items), (of.items, of.answer)]
    if model == "paired_symbols":
        return [(of.items, of.answer), (of.items, 0.0)]
    return [(of.items, of.answer)] * (1 + CG_STEPS if model == "wmf" else 1)


def plan(model: str, size: Size, rates: Rates, machines: int) -> list[Exchange]:
    """The exchanges of a pass; of binary_matrix, of a minibatch; of a model without passes, of its fit."""
    if model == "random_graph":
        return random_graph(size, rates)
    if model == "binary_matrix":
        return [_minibatch(size, rates)]
    if model == "spark_als":
        return [_half_of_als(size, rates, side, machines) for side in (size.users, size.items)]
    if model == "evaluation":
        return [_evaluation(size, rates, machines)]
    if model in rates.passes:
        return _alternating(model, size, rates)
    return _once(model, size, rates, machines)


def random_graph(size: Size, rates: Rates) -> list[Exchange]:
    """The two exchanges of Algorithm 1 with biases updated by themselves; negatives are drawn in each."""
    blocks, messages = rates.blocks, travels("random_graph", size.items)
    whole = sum(map(sum, messages))
    return [
        Exchange(
            down=down,
            up=up,
            work=float(blocks.edge[part] * size.edges + blocks.user[part] * size.users),
            own=float(blocks.item_of_block[part] * size.items),
            handling=float(blocks.handled * size.items * (down + up) / whole),
            update=float(blocks.update * size.items * part),
        )
        for part, (down, up) in enumerate(messages)
    ]


def _alternating(model: str, size: Size, rates: Rates) -> list[Exchange]:
    edge, vertex = rates.passes[model]
    messages = travels(model, size.items)
    shares = [1.0, 0.0] if model == "paired_symbols" else [1 / len(messages)] * len(messages)
    work, update = edge * size.edges + vertex * size.users, vertex * size.items
    return [
        Exchange(down, up, work * share, 0.0, rates.handled_byte * (down + up), update * share)
        for (down, up), share in zip(messages, shares, strict=True)
    ]


def _minibatch(size: Size, rates: Rates) -> Exchange:
    """All blocks look through the minibatch for their entries, and through their edges and users."""
    rate, [(down, up)] = rates.minibatch, travels("binary_matrix", size.items)
    return Exchange(
        down=down,
        up=up,
        work=rate.entry * MINIBATCH + rate.edge * size.edges + rate.user * size.users,
        own=rate.drawn * MINIBATCH + rate.item_of_block * size.items,
        handling=rate.handled * size.items,
        update=rate.update * size.items,
    )


def _half_of_als(size: Size, rates: Rates, vertices: float, machines: int) -> Exchange:
    """One side's vectors are computed and sent to the blocks of the other."""
    edge, vertex = rates.passes["wmf"]
    sent = 4 * WMF_K * vertices * reached(size.edges / vertices, machines) / machines
    return Exchange(up=sent, work=edge * size.edges / 2 + vertex * vertices, handling=rates.handled_byte * sent)


def _evaluation(size: Size, rates: Rates, machines: int) -> Exchange:
    """All users are ranked for, in calls that are cut as `tasks.evaluate.calls` cuts them."""
    step = users_at_once(FITTED["wmf"], int(size.items), int(size.edges))
    calls = ceil(size.users / (step * max(1, USERS_OF_A_CALL // step)))
    answers = (rates.judging.user * size.users + rates.judging.item * size.items * calls) / machines
    return Exchange(
        down=_saved(size) + 4 * size.edges / machines,
        up=answers,
        work=rates.judging.score * size.users * size.items,
        handling=rates.handled_byte * answers,
    )


def _saved(size: Size) -> float:
    """Bytes of a fit of wmf."""
    return 4 * WMF_K * (size.users + size.items)


def _once(model: str, size: Size, rates: Rates, machines: int) -> list[Exchange]:
    pairs = size.pairs(rates)
    if model == "popularity":
        [(_, up)] = travels(model, size.items)
        return [Exchange(up=up, work=rates.counted * size.edges, handling=rates.handled_byte * up)]
    if model == "mrf_dense":
        [(_, up)] = travels(model, size.items, machines)
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
    both = reached(edges / users, machines) / machines
    if model in OF_SIZES:
        of = sizes(model, items)
        drawn = BYTES_OF_ENTRY * MINIBATCH if model == "binary_matrix" else 0
        return Memory(of.items + of.answer + of.here, OF_SIZES[model] * edges + drawn + 2 * of.user * users)
    each, shared = {
        "hpf": (4 * 5 * K * items, 8 * edges + 4 * 3 * K * users),
        "wmf": (4 * 5 * WMF_K * items, 16 * edges + 4 * WMF_K * users),
        "spark_als": (4 * WMF_K * (items + both * users), 16 * edges + 4 * WMF_K * users),
        "mrf_dense": (4 * items**2, 4 * edges),
        "mrf_sparse": (12 * NEIGHBOURS * items, 24 * edges),  # one block's edges, with their weights, and the run's
        "slim": (8 * NEIGHBOURS * items, 24 * edges),
        "popularity": (8 * items, 4 * edges),
        "evaluation": (_saved(size), 4 * edges),
    }[model]
    return Memory(each, shared)
