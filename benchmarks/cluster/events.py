"""A heap of events, servers that do one thing at a time, and the two ways in which machines make a pass together.

In a star the coordinator sends the items to every block, each block computes and sends its message, and the coordinator adds
the messages in the order of the blocks and updates the items. Its link carries one message at a time each way. Sharded, the
items are cut over the machines: each sends to every other the part of its message that is of the other's items, adds what
comes for its own, updates them, and sends them to all. There every machine sends to all others at once at equal rates,
so that no link receives faster than one sends.

Links carry both ways at once. A message arrives `latency` seconds after its last byte left; those of messages overlap.
"""

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True)
class Exchange:
    """One round of messages in a pass.

    Attributes:
        down: bytes of the items' table, of all items.
        up: bytes of a machine's message, of all items.
        work: thread-seconds of all blocks together, which they share evenly.
        own: thread-seconds that each block spends however many there are.
        handling: seconds that whoever adds spends on one message of all items in one thread, pickling with it.
        update: thread-seconds of the update of all items.
    """

    down: float = 0.0
    up: float = 0.0
    work: float = 0.0
    own: float = 0.0
    handling: float = 0.0
    update: float = 0.0


@dataclass(frozen=True)
class Cluster:
    """What a machine and its link can do.

    Attributes:
        bandwidth: of a link, each way, in bytes a second.
        latency: seconds that a message is on its way beside that.
        cores: threads of a machine, each as fast as the one that was measured.
    """

    bandwidth: float = inf
    latency: float = 0.0
    cores: int = 1


@dataclass
class Clock:
    """Events in the order of their times; of one time in the order in which they were set."""

    now: float = 0.0
    heap: list = field(default_factory=list)
    order: itertools.count = field(default_factory=itertools.count)

    def at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (time, next(self.order), event))

    def run(self) -> float:
        """All events, and the time of the last."""
        while self.heap:
            self.now, _, event = heapq.heappop(self.heap)
            event()
        return self.now


@dataclass
class Server:
    """A link one way, or a processor: first come, first served.

    Attributes:
        free: when it will have done all that it was given.
        busy: seconds that it worked.
    """

    clock: Clock
    free: float = 0.0
    busy: float = 0.0

    def serve(self, seconds: float, then: Callable[[], None], late: float = 0.0) -> None:
        """`then` comes `late` seconds after this was done."""
        self.free = max(self.free, self.clock.now) + seconds
        self.busy += seconds
        self.clock.at(self.free + late, then)


@dataclass(frozen=True)
class Took:
    """Seconds of a pass, and those in which the busiest server of each kind worked."""

    seconds: float
    busy: dict[str, float]

    @property
    def wall(self) -> str:
        """What was busy longest."""
        return max(self.busy, key=self.busy.__getitem__)


def star(
    cluster: Cluster, exchanges: Sequence[Exchange], blocks: int, machines: int | None = None, shares: Sequence = ()
) -> Took:
    """A pass in which one coordinator adds.

    Args:
        machines: blocks are dealt to so many in turn, the first of which is the coordinator too; by default each block has
            a machine, and the coordinator another.
        shares: of the work that each block has; equal where none are given.
    """
    clock = Clock()
    out, into = Server(clock), Server(clock)
    processors = [Server(clock) for _ in range(machines or blocks)]
    coordinator = processors[0] if machines else Server(clock)
    shares = shares or [1 / blocks] * blocks
    for exchange in exchanges:
        _star_round(clock, cluster, exchange, (coordinator, out, into), processors, shares)
        clock.run()
    busy = {
        "work": max(one.busy for one in processors),
        "coordinator's link": max(out.busy, into.busy),
        "coordinator's adding": blocks * sum(one.handling for one in exchanges),
        "items' update": sum(one.update for one in exchanges) / cluster.cores,
    }
    return Took(clock.now, busy)


def _star_round(
    clock: Clock,
    cluster: Cluster,
    exchange: Exchange,
    centre: tuple[Server, Server, Server],
    processors: Sequence[Server],
    shares: Sequence[float],
) -> None:
    coordinator, out, into = centre
    arrived, following = set(), 0

    def compute(block: int) -> None:
        seconds = (exchange.work * shares[block] + exchange.own) / cluster.cores
        processors[block % len(processors)].serve(seconds, lambda: send(block))

    def send(block: int) -> None:
        into.serve(exchange.up / cluster.bandwidth, lambda: arrive(block), cluster.latency if exchange.up else 0.0)

    def arrive(block: int) -> None:
        nonlocal following
        arrived.add(block)
        while following in arrived:
            coordinator.serve(exchange.handling, lambda: None)
            following += 1
            if following == len(shares):
                coordinator.serve(exchange.update / cluster.cores, lambda: None)

    late = cluster.latency if exchange.down else 0.0
    for block in range(len(shares)):
        out.serve(exchange.down / cluster.bandwidth, lambda block=block: compute(block), late)


def sharded(cluster: Cluster, exchanges: Sequence[Exchange], machines: int) -> Took:
    """A pass in which every machine adds for its own part of the items; one machine sends nothing."""
    clock = Clock()
    links, processors = ([Server(clock) for _ in range(machines)] for _ in range(2))
    elsewhere = (machines - 1) / machines

    def together(servers: Sequence[Server], seconds: float, late: float = 0.0) -> None:
        for server in servers:
            server.serve(seconds, lambda: None, late)
        clock.run()

    def send(size: float) -> None:
        if size and machines > 1:
            together(links, size * elsewhere / cluster.bandwidth, cluster.latency)

    for exchange in exchanges:
        together(processors, (exchange.work / machines + exchange.own) / cluster.cores)
        send(exchange.up)
        together(processors, exchange.handling * elsewhere + exchange.update / machines / cluster.cores)
        send(exchange.down)
    adding = sum(one.handling for one in exchanges) * elsewhere
    update = sum(one.update for one in exchanges) / machines / cluster.cores
    work = processors[0].busy - adding - update
    busy = {"work": work, "a machine's link": links[0].busy, "a machine's adding": adding, "items' update": update}
    return Took(clock.now, busy)
