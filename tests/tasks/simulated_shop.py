"""Simulate a small shop, night by night, and plant faults in its logs.

The shop grows; weekends and the weeks before Christmas bring more events, the holidays few. Customers have tastes, and
every day brings new customers and items. The seed decides everything.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

import numpy as np

FIRST_DAY = date(2025, 11, 24)
GENRES = 12
WEEKDAY_FACTORS = (1.0, 0.95, 0.95, 1.0, 1.1, 1.4, 1.35)  # from Monday on
HOLIDAY_FACTORS = {(12, 24): 0.6, (12, 25): 0.35, (12, 26): 0.5, (1, 1): 0.6}
# Relative number of events by the hour.
HOUR_WEIGHTS = np.array([4, 2, 1, 1, 1, 1, 2, 4, 7, 8, 8, 9, 10, 9, 8, 8, 9, 11, 13, 15, 16, 15, 12, 8])


@dataclass(frozen=True)
class Log:
    """Events of a day in the order of their times, arrays of one length; seconds since 1970, in UTC."""

    user: np.ndarray
    item: np.ndarray
    value: np.ndarray
    seconds: np.ndarray

    def take(self, positions: np.ndarray) -> "Log":
        """Return the events at some positions."""
        return Log(*(column[positions] for column in vars(self).values()))


class Shop:
    """Simulate customers and items; call `draw_day` for one day after the other."""

    def __init__(self, seed: int, events: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.events = events
        self.user_activity, self.user_tastes = np.empty(0), np.empty((0, GENRES))
        self.item_genre, self.item_appeal = np.empty(0, int), np.empty(0)
        self._add_users(events)
        self._add_items(events // 3)
        self.item_genre[:GENRES] = np.arange(GENRES)

    def _add_users(self, users: int) -> None:
        self.user_activity = np.append(self.user_activity, self.generator.lognormal(0, 0.8, users))
        tastes = self.generator.dirichlet(np.full(GENRES, 0.25), users)
        self.user_tastes = np.concatenate([self.user_tastes, tastes])

    def _add_items(self, items: int) -> None:
        self.item_genre = np.append(self.item_genre, self.generator.integers(0, GENRES, items))
        self.item_appeal = np.append(self.item_appeal, self.generator.lognormal(0, 1.2, items))

    def _draw_volume(self, day: date) -> float:
        before_christmas = (date(2025, 12, 24) - day).days
        season = 1 + 0.7 * np.exp(-(((before_christmas - 6) / 9) ** 2)) if before_christmas > 0 else 1
        season *= HOLIDAY_FACTORS.get((day.month, day.day), 1)
        growth = 1.01 ** (day - FIRST_DAY).days
        return self.events * growth * WEEKDAY_FACTORS[day.weekday()] * season * self.generator.lognormal(0, 0.08)

    def draw_day(self, day: date) -> Log:
        """Draw the log of one day."""
        self._add_users(self.generator.poisson(self.events * 0.01))
        self._add_items(self.generator.poisson(self.events * 0.002))
        events = self.generator.poisson(self._draw_volume(day))
        user = self.generator.choice(len(self.user_activity), events, p=self.user_activity / self.user_activity.sum())
        tastes = self.user_tastes[user].cumsum(axis=1)
        genre = (tastes > self.generator.random((events, 1)) * tastes[:, -1:]).argmax(axis=1)
        item = np.empty(events, int)
        for number in range(GENRES):
            items, events_of_genre = np.flatnonzero(self.item_genre == number), np.flatnonzero(genre == number)
            appeal = self.item_appeal[items]
            item[events_of_genre] = self.generator.choice(items, len(events_of_genre), p=appeal / appeal.sum())
        hour = self.generator.choice(24, events, p=HOUR_WEIGHTS / HOUR_WEIGHTS.sum())
        midnight = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
        seconds = midnight + hour * 3600 + self.generator.integers(0, 3600, events)
        liking = 3.6 + 0.25 * np.log(self.item_appeal[item]) + self.generator.normal(0, 1, events)
        value = np.clip(np.rint(liking), 1, 5)
        return Log(user, item, value, seconds).take(np.argsort(seconds, kind="stable"))


def compute_run_time(day: date) -> datetime:
    """Return the start of the run that reads the log of `day`: three o'clock in the following night."""
    return datetime(day.year, day.month, day.day, 3) + timedelta(days=1)


def _give_half_to_one_user(log: Log, generator: np.random.Generator) -> Log:
    taken = generator.random(len(log.user)) < 0.5
    return replace(log, user=np.where(taken, log.user[0], log.user))


def _sort_by_user(log: Log) -> Log:
    return log.take(np.argsort(log.user.astype(str), kind="stable"))


FAULTS: dict[str, Callable[[Log, np.random.Generator], Log]] = {
    "half a file": lambda log, _: log.take(np.arange(len(log.user) // 2)),
    "half a file by user": lambda log, _: _sort_by_user(log).take(np.arange(len(log.user) // 2)),
    "doubled rows": lambda log, _: log.take(np.repeat(np.arange(len(log.user)), 2)),
    "values x 20": lambda log, _: replace(log, value=20 * log.value),
    "permuted items": lambda log, generator: replace(log, item=generator.permutation(log.item.max() + 1)[log.item]),
    "permuted users": lambda log, generator: replace(log, user=generator.permutation(log.user.max() + 1)[log.user]),
    "a year back": lambda log, _: replace(log, seconds=log.seconds - 365 * 86400),
    "items shifted by a line": lambda log, _: replace(log, item=np.roll(log.item, 1)),
    "half of the events from one user": _give_half_to_one_user,
}
