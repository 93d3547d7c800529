"""What goes wrong with a night's log: the six faults, those that can be more or less plain in more than one kind."""

from collections.abc import Callable

import numpy as np

from benchmarks.reliability.year.shop import COUNTRIES, Log

Fault = Callable[[Log, np.random.Generator], Log]


def half_a_file(log: Log, random: np.random.Generator) -> Log:
    """Cut short: the first half of the lines, which is the earlier part of the day."""
    return log.take(np.arange(len(log.user) // 2))


def doubled_file(log: Log, random: np.random.Generator) -> Log:
    """Every line twice."""
    return log.take(np.repeat(np.arange(len(log.user)), 2))


def items_relabelled(log: Log, random: np.random.Generator) -> Log:
    """Every item has another one's id."""
    ids = random.permutation(log.item.max() + 1)
    return Log(log.user, ids[log.item], log.stars, log.seconds, log.country)


def items_between_lines(log: Log, random: np.random.Generator) -> Log:
    """The column of items is shuffled: each is as popular as ever, but among the wrong users."""
    return Log(log.user, random.permutation(log.item), log.stars, log.seconds, log.country)


def busy_bots(log: Log, random: np.random.Generator) -> Log:
    """Three users of the log, each with 4 % of the events, on any items."""
    events = 3 * (len(log.user) // 25)
    bots = np.repeat(random.choice(log.user, 3, replace=False), events // 3)
    return _with(log, bots, random.integers(0, log.item.max() + 1, events), random)


def swarm_of_bots(log: Log, random: np.random.Generator) -> Log:
    """As many new users as 4 % of the events, who all like the same two items."""
    bots = 10**9 + random.integers(0, 10**8) + np.repeat(np.arange(len(log.user) // 25), 2)
    return _with(log, bots, np.tile(random.choice(log.item, 2), len(bots) // 2), random)


def clock_ahead(log: Log, random: np.random.Generator) -> Log:
    """All times are an hour late or early; the days were cut by the right clock."""
    return Log(log.user, log.item, log.stars, log.seconds + 3600 * random.choice([-1, 1]), log.country)


def clock_that_cuts(log: Log, random: np.random.Generator) -> Log:
    """All times are an hour late or early, and so is the cut between the days: the hours of one day go round."""
    day, second = np.divmod(log.seconds, 86400)
    moved = Log(
        log.user, log.item, log.stars, day * 86400 + (second + 3600 * random.choice([-1, 1])) % 86400, log.country
    )
    return moved.take(np.argsort(moved.seconds, kind="stable"))


def without(country: int) -> Fault:
    """The fault that a country's events are missing."""

    def fault(log: Log, random: np.random.Generator) -> Log:
        return log.take(np.flatnonzero(log.country != country))

    return fault


def _with(log: Log, users: np.ndarray, items: np.ndarray, random: np.random.Generator) -> Log:
    """The log with five-star events of these users and items spread over its day."""
    seconds = random.integers(log.seconds.min(), log.seconds.max(), len(users))
    added = Log(users, items, np.full(len(users), 5), seconds, np.full(len(users), -1))
    both = Log(*(np.concatenate(pair) for pair in zip(vars(log).values(), vars(added).values(), strict=True)))
    return both.take(np.argsort(both.seconds, kind="stable"))


KINDS: dict[str, Fault] = {
    "half a file": half_a_file,
    "doubled file": doubled_file,
    "shuffled items: other ids": items_relabelled,
    "shuffled items: between lines": items_between_lines,
    "bots: three busy ones": busy_bots,
    "bots: a swarm": swarm_of_bots,
    **{f"missing country of {share}": without(place) for place, share in enumerate(COUNTRIES)},
    "clock an hour off": clock_ahead,
    "clock an hour off, days cut by it": clock_that_cuts,
}
