"""Metrics by strata: thirds of users by their histories, thirds of items by popularity, attributes of users.

Thirds are cut at the values at one and two thirds of the sorted users or items; equal values share a stratum. Strata of
items divide the targets: a metric is over the users with a target in the stratum, whose other targets stay in the
ranking as candidates that are none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from oneclass.models.evaluation.metrics import mean_and_error
from oneclass.models.evaluation.metrics_at_k import find_metric
from oneclass.models.numerics.validation import count_item_degrees
from oneclass.tasks.evaluate.ranked_targets import ComputeMetric, RankedTargets, from_ranks
from oneclass.tasks.stores.matrices import Part, SplitMatrices

ACTIVITY, POPULARITY = "activity", "popularity"
THIRDS = ("low", "middle", "high")
METRICS = ("ndcg@100", "recall@20", "mean_rank")  # of `evaluation.strata`; every protocol has them
COMPUTE_METRICS: dict[str, ComputeMetric] = {
    name: from_ranks(metric) for name in METRICS if (metric := find_metric(name)) is not None
}


class Stratum(NamedTuple):
    """Some of the users, or some of the items.

    Attributes:
        name: None for users without a value of the attribute.
        least, most: the range of its values; None if these are no numbers.
        members: bool (users,) or (items,).
    """

    name: str | None
    least: float | None
    most: float | None
    members: np.ndarray


class StratumValues(NamedTuple):
    """Metrics over the targets in one stratum of items.

    Attributes:
        of_users: float64 (users,) by metric, of the users with a target in it.
        targets: their number.
    """

    of_users: dict[str, np.ndarray]
    targets: int


class StratumRow(NamedTuple):
    """One metric of a list over a stratum: the columns of `evaluation.strata` from `metric` on, without `strata`."""

    metric: str
    stratum: str | None
    least: float | None
    most: float | None
    value: float
    standard_error: float | None
    users: int
    targets: int


@dataclass(frozen=True)
class UsersWithTargets:
    """The users over whom the metrics of all targets are, those of all folds in the order of their batches.

    Attributes:
        users: int32 (users,), their curated `user_index`.
        history_lengths, targets: int64 (users,), the number of items in their histories, and of their targets.
        is_ranked: bool (users with a target,), whether they are among these; some have only new items to be found.
    """

    users: np.ndarray
    history_lengths: np.ndarray
    targets: np.ndarray
    is_ranked: np.ndarray

    @classmethod
    def of(cls, tested: Sequence[SplitMatrices]) -> "UsersWithTargets":
        """Collect them from the test parts of splits."""
        blocks = []
        for split in tested:
            part = split.parts["test"]
            lengths, known = _count_history_items(split, part), _count_known_targets(part)
            found = np.diff(part.targets.indptr) > 0
            ranked = known > 0
            blocks.append((part.users[ranked], lengths[ranked], known[ranked], ranked[found]))
        return cls(*(np.concatenate(of) for of in zip(*blocks, strict=True)))


def _count_history_items(split: SplitMatrices, part: Part) -> np.ndarray:
    lengths = np.diff(part.histories.indptr) if part.rows is None else np.diff(split.train.indptr)[part.rows]
    return lengths.astype(np.int64)


def _count_known_targets(part: Part) -> np.ndarray:
    """Count each user's targets, without those that are ranked apart as new items."""
    counts = np.diff(part.targets.indptr).astype(np.int64)
    if part.new_items is None:
        return counts
    is_new = np.isin(part.targets.indices, part.new_items)
    return counts - np.diff(np.append(0, np.cumsum(is_new))[part.targets.indptr])


def cut_thirds(values: np.ndarray) -> list[Stratum]:
    """Divide users or items by their values, float64; NaN are in none."""
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return []
    cuts = [known[-(-len(known) * part // 3) - 1] for part in (1, 2)]
    numbers = np.where(np.isnan(values), -1, np.searchsorted(cuts, values))  # equal to a cut is below it
    inside = [(name, numbers == number) for number, name in enumerate(THIRDS)]
    return [Stratum(name, float(values[of].min()), float(values[of].max()), of) for name, of in inside if of.any()]


def divide_by_attribute(values: pl.Series) -> list[Stratum]:
    """Divide users by an attribute: thirds of numbers, else the users of each text; those without a value last.

    Args:
        values: (users,), numbers, texts or lists of texts.
    """
    if values.dtype.is_numeric():
        numbers = values.cast(pl.Float64).fill_null(np.nan).to_numpy()
        return [*cut_thirds(numbers), Stratum(None, None, None, np.isnan(numbers))]
    cells = pl.DataFrame({"row": np.arange(len(values)), "text": values})
    cells = cells.explode("text") if isinstance(values.dtype, pl.List) else cells.cast({"text": pl.String})
    found, is_missing = [], np.ones(len(values), dtype=np.bool_)
    for (text,), of_text in cells.drop_nulls("text").partition_by("text", as_dict=True).items():
        members = np.zeros(len(values), dtype=np.bool_)
        members[of_text["row"].to_numpy()] = True
        is_missing &= ~members
        found.append(Stratum(str(text), None, None, members))
    return [*sorted(found, key=lambda stratum: stratum.name), Stratum(None, None, None, is_missing)]


def count_item_likes(tested: Sequence[SplitMatrices]) -> np.ndarray:
    """Count each item's training likes, float64 by `item_index`, of folds the most in any; NaN for items of none."""
    likes = np.full(max(int(split.items.max(initial=-1)) for split in tested) + 1, np.nan)
    for split in tested:
        likes[split.items] = np.fmax(likes[split.items], count_item_degrees(split.train))
    return likes


def number_strata(strata: Sequence[Stratum], count: int) -> np.ndarray:
    """Return the position of each item's stratum, int8 (count,); -1 for items of none."""
    numbers = np.full(count, -1, dtype=np.int8)
    for number, stratum in enumerate(strata):
        numbers[stratum.members] = number
    return numbers


def evaluate_targets(
    targets: RankedTargets, numbers: np.ndarray, metrics: Mapping[str, ComputeMetric] = COMPUTE_METRICS
) -> list[StratumValues]:
    """Compute metrics over the targets in each third of the items.

    Args:
        numbers: int8, of each item by the columns of the targets, that of `number_strata`.
    """
    of_targets, values = numbers[targets.items], []
    for number in range(len(THIRDS)):
        part = targets.select(of_targets == number)
        of_users = {name: metric(part) if len(part.users) else np.empty(0) for name, metric in metrics.items()}
        values.append(StratumValues(of_users, len(part.items)))
    return values


def join_values(blocks: Sequence[Sequence[StratumValues]]) -> list[StratumValues]:
    """Join the values of blocks of users, in their order."""
    return [
        StratumValues(
            {name: np.concatenate([of.of_users[name] for of in of_stratum]) for name in of_stratum[0].of_users},
            sum(of.targets for of in of_stratum),
        )
        for of_stratum in zip(*blocks, strict=True)
    ]


def average_by_user_strata(
    strata: Sequence[Stratum], of_users: Mapping[str, np.ndarray], targets: np.ndarray
) -> Iterator[StratumRow]:
    """Yield a row for each stratum of users and metric.

    Args:
        of_users: float64 (users,) by metric; users with NaN are left out.
        targets: int64 (users,), the number of their targets.
    """
    for stratum in strata:
        if stratum.members.any():
            values = StratumValues(
                {name: of[stratum.members] for name, of in of_users.items()}, int(targets[stratum.members].sum())
            )
            yield from _average(stratum, values)


def average_by_item_strata(strata: Sequence[Stratum], values: Sequence[StratumValues]) -> Iterator[StratumRow]:
    """Yield a row for each stratum of items with a target, and metric."""
    for stratum, of_stratum in zip(strata, values, strict=False):
        yield from _average(stratum, of_stratum)


def _average(stratum: Stratum, values: StratumValues) -> Iterator[StratumRow]:
    for metric, of_users in values.of_users.items():
        if not np.isnan(of_users).all():
            mean = mean_and_error(of_users)
            yield StratumRow(metric, *stratum[:3], mean.value, mean.standard_error, mean.users, values.targets)
