"""Splits of interactions into training and test pairs, to be evaluated: each user's last, a random share, or by time.

A pair of a user and an item is on one side only, with all its events.
"""

import warnings
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import polars as pl

from oneclass.interactions import Interactions

PAIR = ["user_id", "item_id"]


class Split:
    """What models are fitted on and what they are to find; a pair in both counts as training, with a warning.

    Attributes:
        name: of its rows in the tables of an evaluation.
        train, test: the interactions.
    """

    def __init__(self, name: str, train: Any, test: Any) -> None:
        """Name two sets of `Interactions`, or of what it reads.

        Raises:
            ValueError: ids are texts on one side and numbers on the other.
        """
        self.name, self.train, self.test = name, read_interactions(train), read_interactions(test)
        kinds = [[str(of.events.schema[name]) for name in PAIR] for of in (self.train, self.test)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"split {name}: ids of train are {kinds[0]} and of test {kinds[1]}; give both alike")
        tested = self.test.events.select(PAIR).unique()
        if repeated := len(tested.join(self.train.events, on=PAIR, how="semi")):
            warnings.warn(
                f"split {name}: {repeated} of {len(tested)} test pairs are training pairs too, and are left out, for "
                "models rank what a user does not have; take them out of train, or evaluate the whole log by the "
                "protocol next_events, which ranks what people come back to",
                stacklevel=2,
            )

    def __repr__(self) -> str:
        return f"Split({self.name!r}, train={self.train}, test={self.test})"


def split_last(interactions: Any, n: int = 1) -> Split:
    """Hold out the last n items of each user with more than n, by the time of the first event, else by order of rows.

    Raises:
        ValueError: n is not positive, or no user has more than n items.
    """
    if n < 1:
        raise ValueError(f"n = {n}: give a whole number from 1")
    table = read_interactions(interactions)
    return _hold_out(
        table, f"last {n}", _rank_by_age(table), pl.when(pl.len().over("user_id") > n).then(n).otherwise(0)
    )


def split_share(
    interactions: Any, share: float = 0.2, *, latest: bool = False, seeds: Sequence[int] = (0,)
) -> list[Split]:
    """Hold out a share of each user's items, rounded down, at random or the latest ones.

    Args:
        latest: take those whose first event is the latest, else by order of rows; one split, whatever the seeds.
        seeds: a split of each.

    Raises:
        ValueError: the share is not between 0 and 1, or so small that no user has an item held out.
    """
    if not 0 < share < 1:
        raise ValueError(f"share = {share}: give a number between 0 and 1")
    table = read_interactions(interactions)
    held_out = (pl.len().over("user_id") * share + 1e-9).floor()  # .2 of 5 is 1
    if latest:
        return [_hold_out(table, f"latest {share:g}", _rank_by_age(table), held_out)]
    pairs = table.events.select(PAIR).unique().sort(PAIR)
    draws = {seed: pl.Series("order", np.random.default_rng(seed).permutation(len(pairs))) for seed in seeds}
    return [_hold_out(table, f"seed {seed}", pairs.with_columns(order), held_out) for seed, order in draws.items()]


def split_times(interactions: Any, cuts: Iterable[str | date | datetime]) -> list[Split]:
    """Train on the events before each cut, and test on those from it until the next one, of pairs not seen before.

    Args:
        cuts: times in UTC or days, or texts such as `2026-01-31`.

    Raises:
        ValueError: the events have no times, or a cut has none on one of its sides.
    """
    table = read_interactions(interactions)
    if "time" not in table.events.columns:
        raise ValueError("split_times needs times: name their column by Interactions(time=...)")
    times = pl.Series([datetime.fromisoformat(str(cut)) for cut in cuts]).to_list()
    if not times or times != sorted(set(times)):
        raise ValueError("cuts: give at least one, in ascending order")
    events = table.events.with_columns(pl.col("time").fill_null(pl.col("time").min()))
    found = []
    for cut, end in zip(times, [*times[1:], None], strict=True):
        train = events.filter(pl.col("time") < cut)
        test = events.filter(pl.col("time") >= cut, True if end is None else pl.col("time") < end)
        found.append(_make_split(table, f"from {cut:%Y-%m-%d %H:%M}".removesuffix(" 00:00"), train, test))
    return found


def as_splits(data: Any) -> list[Split]:
    """Return the splits that `data` consists of, with names of their own; none if it is not of splits.

    Raises:
        ValueError: two have one name.
    """
    splits = [data] if isinstance(data, Split) else data if isinstance(data, list | tuple) else []
    splits = [split for split in splits if isinstance(split, Split)]
    if len({split.name for split in splits}) < len(splits):
        raise ValueError("splits: two have one name; give each its own")
    return splits


def read_interactions(data: Any) -> Interactions:
    """Return `Interactions`, made of what else it reads."""
    return data if isinstance(data, Interactions) else Interactions(data)


def _rank_by_age(table: Interactions) -> pl.DataFrame:
    """Return a row for each pair, with `order` ascending from the newest, by the times of first events."""
    events = table.events.with_row_index("position")
    names = [name for name in ("time", "position") if name in events.columns]
    firsts = [pl.col(name).fill_null(events[name].min()).min() for name in names]
    pairs = events.group_by(PAIR).agg(firsts)
    return pairs.select(*PAIR, order=pl.struct(names).rank("ordinal", descending=True))


def _hold_out(table: Interactions, name: str, pairs: pl.DataFrame, count: pl.Expr) -> Split:
    """Hold out so many pairs of each user, those with the lowest `order`."""
    test = pairs.filter(pl.col("order").rank("ordinal").over("user_id") <= count)
    events = table.events
    return _make_split(table, name, events.join(test, on=PAIR, how="anti"), events.join(test, on=PAIR, how="semi"))


def _make_split(table: Interactions, name: str, train: pl.DataFrame, test: pl.DataFrame) -> Split:
    test = test.join(train, on=PAIR, how="anti")
    for side, events in (("training", train), ("test", test)):
        if events.is_empty():
            raise ValueError(f"split {name!r}: no {side} event is left; take another cut, share or number")
    sides = (Interactions(events, items=table.items) for events in (train, test))
    return Split(name, *sides)
