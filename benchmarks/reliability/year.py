"""A small shop with customers in four countries, and the log of each of its days.

It grows; weekends and winter bring more, holidays less. Customers have tastes and come back to what they like; some are
new every day, and so are some items. Nothing but the seed decides what it brings.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

import numpy as np

FIRST_DAY = date(2025, 1, 1)
COUNTRIES = {"50 %": (0.50, 0), "25 %": (0.25, 1), "15 %": (0.15, -6), "10 %": (0.10, 8)}  # customers, hours off UTC
GENRES = 12
WEEKDAYS = np.array([1.0, 0.95, 0.95, 1.0, 1.1, 1.4, 1.35])  # from Monday on
HOLIDAYS = {(1, 1), (4, 18), (4, 21), (5, 1), (8, 15), (11, 1), (12, 25), (12, 26)}
# Events by the hour of a customer's own day.
HOURS = np.array([4, 2, 1, 1, 1, 1, 2, 4, 7, 8, 8, 9, 10, 9, 8, 8, 9, 11, 13, 15, 16, 15, 12, 8])


@dataclass(frozen=True)
class Log:
    """Events of a day in the order of their times, as arrays of one length.

    Attributes:
        country: place in COUNTRIES of the event's user.
        seconds: since 1970, in UTC.
    """

    user: np.ndarray
    item: np.ndarray
    stars: np.ndarray
    seconds: np.ndarray
    country: np.ndarray

    def take(self, places: np.ndarray) -> "Log":
        """The events at these places."""
        return replace(self, **{name: column[places] for name, column in vars(self).items()})

    def csv(self, broken: int) -> str:
        """The log as a file, its first `broken` lines without their last two fields."""
        rows = zip(self.user, self.item, self.stars, self.seconds, strict=True)
        lines = [f"u{user},i{item},{stars},{second}" for user, item, stars, second in rows]
        lines = [line.rsplit(",", 2)[0] if place < broken else line for place, line in enumerate(lines)]
        return "\n".join(["user_id,item_id,rating,timestamp", *lines, ""])


class Shop:
    """Customers and items; `day` must be called for one day after the other."""

    def __init__(self, seed: int, events: int) -> None:
        self.random = np.random.default_rng(seed)
        self.events = events
        self.country_tastes = self.random.dirichlet(np.full(GENRES, 0.7), len(COUNTRIES))
        self.user_country, self.user_activity = np.empty(0, int), np.empty(0)
        self.user_tastes = np.empty((0, GENRES))
        self.item_genre, self.item_appeal = np.empty(0, int), np.empty(0)
        self._join(events)
        self._list(events // 3)

    def _join(self, users: int) -> None:
        shares = [share for share, _ in COUNTRIES.values()]
        country = self.random.choice(len(COUNTRIES), users, p=shares)
        own = np.array([self.random.dirichlet(3 * self.country_tastes[one] + 0.02) for one in country])
        self.user_country = np.append(self.user_country, country)
        self.user_activity = np.append(self.user_activity, self.random.lognormal(0, 0.8, users))
        self.user_tastes = np.concatenate([self.user_tastes, own.reshape(-1, GENRES)])

    def _list(self, items: int) -> None:
        self.item_genre = np.append(self.item_genre, self.random.integers(0, GENRES, items))
        self.item_appeal = np.append(self.item_appeal, self.random.lognormal(0, 1.2, items))

    def _expected(self, day: date) -> float:
        number = (day - FIRST_DAY).days
        season = 1 + 0.15 * np.cos(2 * np.pi * number / 365)
        holiday = 0.75 if (day.month, day.day) in HOLIDAYS else 1
        return (
            self.events * 1.0015**number * WEEKDAYS[day.weekday()] * season * holiday * self.random.lognormal(0, 0.06)
        )

    def day(self, day: date) -> Log:
        """The log of one day."""
        self._join(self.random.poisson(self.events * 0.008))
        self._list(self.random.poisson(self.events * 0.0008))
        events = self.random.poisson(self._expected(day))
        user = self.random.choice(len(self.user_activity), events, p=self.user_activity / self.user_activity.sum())
        tastes = self.user_tastes[user].cumsum(axis=1)
        genre = (tastes > self.random.random((events, 1)) * tastes[:, -1:]).argmax(axis=1)
        item = np.empty(events, int)
        for one in range(GENRES):
            there, here = np.flatnonzero(self.item_genre == one), np.flatnonzero(genre == one)
            appeal = self.item_appeal[there]
            item[here] = self.random.choice(there, len(here), p=appeal / appeal.sum())
        country = self.user_country[user]
        offset = np.array([hours for _, hours in COUNTRIES.values()])[country]
        hour = self.random.choice(24, events, p=HOURS / HOURS.sum()) - offset
        midnight = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
        seconds = midnight + hour % 24 * 3600 + self.random.integers(0, 3600, events)
        liking = 3.6 + 0.25 * np.log(self.item_appeal[item]) + self.random.normal(0, 1, events)
        stars = np.clip(np.rint(liking), 1, 5).astype(int)
        log = Log(user, item, stars, seconds, country)
        return log.take(np.argsort(seconds, kind="stable"))


def night_of(day: date) -> datetime:
    """When the run begins that reads the log of `day`: at three in the next night."""
    return datetime(day.year, day.month, day.day, 3) + timedelta(days=1)


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
