"""Simulate a small shop with customers in four countries, day by day, and plant faults in its logs.

The shop grows; weekends and winter bring more events, holidays fewer. Customers have tastes and come back to what they
like; every day brings new customers and items. The seed decides everything.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

import numpy as np

FIRST_DAY = date(2025, 1, 1)
# Share of the customers, and hours off UTC.
COUNTRIES = {"50 %": (0.50, 0), "25 %": (0.25, 1), "15 %": (0.15, -6), "10 %": (0.10, 8)}
GENRES = 12
WEEKDAY_FACTORS = np.array([1.0, 0.95, 0.95, 1.0, 1.1, 1.4, 1.35])  # from Monday on
HOLIDAYS = {(1, 1), (4, 18), (4, 21), (5, 1), (8, 15), (11, 1), (12, 25), (12, 26)}
# Relative number of events by the hour of a customer's own day.
HOUR_WEIGHTS = np.array([4, 2, 1, 1, 1, 1, 2, 4, 7, 8, 8, 9, 10, 9, 8, 8, 9, 11, 13, 15, 16, 15, 12, 8])


@dataclass(frozen=True)
class Log:
    """Events of a day in the order of their times, arrays of one length.

    Attributes:
        country: index in COUNTRIES of the user's country.
        seconds: since 1970, in UTC.
    """

    user: np.ndarray
    item: np.ndarray
    stars: np.ndarray
    seconds: np.ndarray
    country: np.ndarray

    def take(self, positions: np.ndarray) -> "Log":
        """Return the events at some positions."""
        return replace(self, **{name: column[positions] for name, column in vars(self).items()})


class Shop:
    """Simulate customers and items; call `draw_day` for one day after the other."""

    def __init__(self, seed: int, events: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.events = events
        self.country_tastes = self.generator.dirichlet(np.full(GENRES, 0.7), len(COUNTRIES))
        self.user_country, self.user_activity = np.empty(0, int), np.empty(0)
        self.user_tastes = np.empty((0, GENRES))
        self.item_genre, self.item_appeal = np.empty(0, int), np.empty(0)
        self._add_users(events)
        self._add_items(events // 3)

    def _add_users(self, users: int) -> None:
        shares = [share for share, _ in COUNTRIES.values()]
        country = self.generator.choice(len(COUNTRIES), users, p=shares)
        own = np.array([self.generator.dirichlet(3 * self.country_tastes[one] + 0.02) for one in country])
        self.user_country = np.append(self.user_country, country)
        self.user_activity = np.append(self.user_activity, self.generator.lognormal(0, 0.8, users))
        self.user_tastes = np.concatenate([self.user_tastes, own.reshape(-1, GENRES)])

    def _add_items(self, items: int) -> None:
        self.item_genre = np.append(self.item_genre, self.generator.integers(0, GENRES, items))
        self.item_appeal = np.append(self.item_appeal, self.generator.lognormal(0, 1.2, items))

    def _draw_volume(self, day: date) -> float:
        number = (day - FIRST_DAY).days
        season = 1 + 0.15 * np.cos(2 * np.pi * number / 365)
        holiday = 0.75 if (day.month, day.day) in HOLIDAYS else 1
        return (
            self.events
            * 1.0015**number
            * WEEKDAY_FACTORS[day.weekday()]
            * season
            * holiday
            * self.generator.lognormal(0, 0.06)
        )

    def draw_day(self, day: date) -> Log:
        """Draw the log of one day."""
        self._add_users(self.generator.poisson(self.events * 0.008))
        self._add_items(self.generator.poisson(self.events * 0.0008))
        events = self.generator.poisson(self._draw_volume(day))
        user = self.generator.choice(len(self.user_activity), events, p=self.user_activity / self.user_activity.sum())
        tastes = self.user_tastes[user].cumsum(axis=1)
        genre = (tastes > self.generator.random((events, 1)) * tastes[:, -1:]).argmax(axis=1)
        item = np.empty(events, int)
        for number in range(GENRES):
            items, events_of_genre = np.flatnonzero(self.item_genre == number), np.flatnonzero(genre == number)
            appeal = self.item_appeal[items]
            item[events_of_genre] = self.generator.choice(items, len(events_of_genre), p=appeal / appeal.sum())
        country = self.user_country[user]
        offset = np.array([hours for _, hours in COUNTRIES.values()])[country]
        hour = self.generator.choice(24, events, p=HOUR_WEIGHTS / HOUR_WEIGHTS.sum()) - offset
        midnight = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
        seconds = midnight + hour % 24 * 3600 + self.generator.integers(0, 3600, events)
        liking = 3.6 + 0.25 * np.log(self.item_appeal[item]) + self.generator.normal(0, 1, events)
        stars = np.clip(np.rint(liking), 1, 5).astype(int)
        log = Log(user, item, stars, seconds, country)
        return log.take(np.argsort(seconds, kind="stable"))


def compute_run_time(day: date) -> datetime:
    """Return the start of the run that reads the log of `day`: three o'clock in the following night."""
    return datetime(day.year, day.month, day.day, 3) + timedelta(days=1)


Fault = Callable[[Log, np.random.Generator], Log]


def truncate_file(log: Log, generator: np.random.Generator) -> Log:
    """Keep the first half of the lines, which is the earlier part of the day."""
    return log.take(np.arange(len(log.user) // 2))


def double_file(log: Log, generator: np.random.Generator) -> Log:
    """Write every line twice."""
    return log.take(np.repeat(np.arange(len(log.user)), 2))


def permute_item_ids(log: Log, generator: np.random.Generator) -> Log:
    """Give every item the id of another."""
    ids = generator.permutation(log.item.max() + 1)
    return Log(log.user, ids[log.item], log.stars, log.seconds, log.country)


def shuffle_items(log: Log, generator: np.random.Generator) -> Log:
    """Shuffle the column of items: popularities stay, the users are wrong."""
    return Log(log.user, generator.permutation(log.item), log.stars, log.seconds, log.country)


def add_busy_bots(log: Log, generator: np.random.Generator) -> Log:
    """Add events of three users, each 4 % of the log, on any items."""
    events = 3 * (len(log.user) // 25)
    bots = np.repeat(generator.choice(log.user, 3, replace=False), events // 3)
    return _add_events(log, bots, generator.integers(0, log.item.max() + 1, events), generator)


def add_bot_swarm(log: Log, generator: np.random.Generator) -> Log:
    """Add as many new users as 4 % of the events, who all like the same two items."""
    bots = 10**9 + generator.integers(0, 10**8) + np.repeat(np.arange(len(log.user) // 25), 2)
    return _add_events(log, bots, np.tile(generator.choice(log.item, 2), len(bots) // 2), generator)


def shift_times(log: Log, generator: np.random.Generator) -> Log:
    """Shift all times by an hour; the days are cut by the right clock."""
    return Log(log.user, log.item, log.stars, log.seconds + 3600 * generator.choice([-1, 1]), log.country)


def shift_clock(log: Log, generator: np.random.Generator) -> Log:
    """Shift all times and the cut between the days by an hour, so that the hours of a day wrap around."""
    day, second = np.divmod(log.seconds, 86400)
    moved = Log(
        log.user, log.item, log.stars, day * 86400 + (second + 3600 * generator.choice([-1, 1])) % 86400, log.country
    )
    return moved.take(np.argsort(moved.seconds, kind="stable"))


def build_country_loss(country: int) -> Fault:
    """Build the fault that removes the events of a country."""

    def remove_country(log: Log, generator: np.random.Generator) -> Log:
        return log.take(np.flatnonzero(log.country != country))

    return remove_country


def _add_events(log: Log, users: np.ndarray, items: np.ndarray, generator: np.random.Generator) -> Log:
    """Add five-star events of users and items at random times of the log's day."""
    seconds = generator.integers(log.seconds.min(), log.seconds.max(), len(users))
    added = Log(users, items, np.full(len(users), 5), seconds, np.full(len(users), -1))
    both = Log(*(np.concatenate(pair) for pair in zip(vars(log).values(), vars(added).values(), strict=True)))
    return both.take(np.argsort(both.seconds, kind="stable"))


FAULTS: dict[str, Fault] = {
    "half a file": truncate_file,
    "doubled file": double_file,
    "shuffled items: other ids": permute_item_ids,
    "shuffled items: between lines": shuffle_items,
    "bots: three busy ones": add_busy_bots,
    "bots: a swarm": add_bot_swarm,
    **{f"missing country of {share}": build_country_loss(number) for number, share in enumerate(COUNTRIES)},
    "clock an hour off": shift_times,
    "clock an hour off, days cut by it": shift_clock,
}
