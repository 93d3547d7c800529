"""Evaluate ranked lists by strata: thirds of users by their histories, thirds of items by popularity, or an attribute.

Thirds are cut at the values at one and two thirds of the sorted users or items; equal values share a stratum.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from oneclass.interactions import Interactions, attribute_kinds
from oneclass.list_heads import list_texts
from oneclass.models.evaluation.definitions import USER_METRICS
from oneclass.models.evaluation.metrics import mean_and_error
from oneclass.models.evaluation.metrics_at_k import find_metric, select_targets
from oneclass.models.numerics.validation import count_item_degrees
from oneclass.tasks.evaluate.ranking import RankedTargets
from oneclass.tasks.protocols import FittedSplit
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home
from oneclass.user_metrics import ComputeMetric, IdsByIndex, ListRanks, OwnMetric, compile_metric

BUILT_IN = ("activity", "popularity")
THIRDS = ("low", "middle", "high")
SCHEMA = {
    "model": pl.String,
    "score": pl.String,
    "metric": pl.String,
    "stratum": pl.String,
    "least": pl.Float64,
    "most": pl.Float64,
    "value": pl.Float64,
    "standard_error": pl.Float64,
    "users": pl.Int64,
    "targets": pl.Int64,
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


def check_strata(strata: str, table: Interactions, metrics: Mapping[str, str | OwnMetric]) -> None:
    """Refuse unknown strata, and metrics of which none can be computed for some targets alone.

    Raises:
        ValueError: it names the strata that there are.
    """
    attributes = [] if table.users is None else list(attribute_kinds(table.users, "user_id"))
    if strata not in (*BUILT_IN, *attributes):
        where = "" if attributes else "; attributes are those of Interactions(users=...)"
        raise ValueError(f"strata {strata!r}: take one of {', '.join([*BUILT_IN, *attributes])}{where}")
    if metrics and not any(callable(metric) or find_metric(metric) for metric in metrics.values()):
        raise ValueError(f"strata: {', '.join(metrics)} are of whole lists; add a metric of users, such as ndcg@10")


def evaluate_strata(
    lists: Sequence[ListRanks],
    metrics: Mapping[str, str | OwnMetric],
    strata: str,
    table: Interactions,
    ids: IdsByIndex,
    *,
    home: Home,
    splits: Sequence[FittedSplit],
) -> pl.DataFrame:
    """Compute metrics by strata: a row per list, stratum and metric, with the columns `SCHEMA`.

    Strata of items divide the targets: a metric is over the users with a target in the stratum, whose other targets
    stay in the ranking as candidates that are none.

    Args:
        metrics: those of whole lists are left out; if empty, those of users of a run's tables.
    """
    names = metrics or {name: name for name in USER_METRICS}
    computed = {name: found for name, metric in names.items() if (found := compile_metric(metric, ids)) is not None}
    of_items = _cut_thirds(_count_item_likes(home, splits, len(ids.items))) if strata == "popularity" else []
    rows = []
    for model, score, targets, _ in lists:
        counts = np.diff(targets.ranks.indptr)
        for stratum in of_items or _divide_users(strata, targets, table, ids):
            chosen = stratum.members[targets.items] if of_items else np.repeat(stratum.members, counts)
            if chosen.any():
                common = model, score, stratum.name, stratum.least, stratum.most
                rows += _evaluate_targets(common, computed, targets, chosen)
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _evaluate_targets(
    common: tuple, metrics: Mapping[str, ComputeMetric], targets: RankedTargets, chosen: np.ndarray
) -> Iterator[tuple]:
    """Yield a row for each metric over the chosen targets."""
    model, score, *stratum = common
    users, ranks = select_targets(targets.ranks, chosen)
    part = RankedTargets(targets.users[users], targets.history_lengths[users], targets.items[chosen], ranks)
    for name, metric in metrics.items():
        values = metric(part)
        if not np.isnan(values).all():
            mean = mean_and_error(values)
            count = int(chosen.sum())
            yield (model, score, name, *stratum, mean.value, mean.standard_error, mean.users, count)


def _divide_users(strata: str, targets: RankedTargets, table: Interactions, ids: IdsByIndex) -> list[Stratum]:
    if strata == "activity":
        return _cut_thirds(targets.history_lengths.astype(np.float64))
    return _divide_by_attribute(strata, [ids.users[user] for user in targets.users], table.users)


def _cut_thirds(values: np.ndarray) -> list[Stratum]:
    """Divide users or items by their values, float64; NaN are in none."""
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return []
    cuts = [known[-(-len(known) * part // 3) - 1] for part in (1, 2)]
    numbers = np.where(np.isnan(values), -1, np.searchsorted(cuts, values))  # equal to a cut is below it
    inside = [(name, numbers == number) for number, name in enumerate(THIRDS)]
    return [Stratum(name, float(values[of].min()), float(values[of].max()), of) for name, of in inside if of.any()]


def _count_item_likes(home: Home, splits: Sequence[FittedSplit], items: int) -> np.ndarray:
    """Count each item's training likes, of folds the most in any; NaN for items that no split has."""
    likes = np.full(items, np.nan)
    for digest, _ in splits:
        split = matrices.load_split(home, digest)
        if "test" in split.parts:
            likes[split.items] = np.fmax(likes[split.items], count_item_degrees(split.train))
    return likes


def _divide_by_attribute(column: str, users: Sequence[Any], table: pl.DataFrame | None) -> list[Stratum]:
    """Divide users by an attribute: thirds of numbers, else the users of each text, those without one last."""
    if table is None:
        return []
    kind = attribute_kinds(table, "user_id")[column]
    value_of_user = dict(table.select("user_id", column).iter_rows())
    values = [value_of_user.get(user) for user in users]
    if kind == "number":
        numbers = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        found, is_missing = _cut_thirds(numbers), np.isnan(numbers)
    else:
        texts = [list_texts(value) for value in values]
        names = sorted({text for row in texts for text in row})
        found = [Stratum(name, None, None, np.array([name in row for row in texts])) for name in names]
        is_missing = np.array([not row for row in texts])
    return [*found, Stratum(None, None, None, is_missing)]
