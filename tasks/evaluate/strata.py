"""Metrics by strata: thirds of the test users by the length of their histories, and of the items by training likes.

Thirds are cut at the values at one and two thirds of the sorted users or items; equal values share a stratum. Strata of
items divide the targets: a metric is over the users with a target in the stratum, whose other targets stay in the
ranking as candidates that are none.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from oneclass.models.evaluation.metrics import UserMetric, find_metric, mean_and_error
from oneclass.models.numerics.validation import count_item_degrees
from oneclass.tasks.evaluate.ranking import RankedTargets
from oneclass.tasks.stores.matrices import SplitMatrices

STRATA = ACTIVITY, POPULARITY = "activity", "popularity"
THIRDS = ("low", "middle", "high")
METRICS = ("ndcg@100", "recall@20", "mean_rank")  # of `evaluation.strata`; every protocol has them
COMPUTE_METRICS: dict[str, UserMetric] = {name: of for name in METRICS if (of := find_metric(name)) is not None}


class StratumRow(NamedTuple):
    """One metric of a list over a stratum: the columns of `evaluation.strata` from `metric` on.

    Attributes:
        least, most: the range of the stratum's values.
    """

    metric: str
    strata: str
    stratum: str
    least: float
    most: float
    value: float
    standard_error: float | None
    users: int
    targets: int


def count_item_likes(tested: Sequence[SplitMatrices]) -> np.ndarray:
    """Count each item's training likes, float64 by `item_index`, of folds the most in any; NaN for items of none."""
    likes = np.full(max(int(split.items.max(initial=-1)) for split in tested) + 1, np.nan)
    for split in tested:
        likes[split.items] = np.fmax(likes[split.items], count_item_degrees(split.train))
    return likes


def evaluate_strata(targets: RankedTargets, item_likes: np.ndarray) -> Iterator[StratumRow]:
    """Yield a row for each stratum of the test users or items that has a target, and metric.

    Args:
        targets: with `items` as curated `item_index`.
        item_likes: of `count_item_likes`.
    """
    for strata in STRATA:
        values = targets.history_lengths.astype(np.float64) if strata == ACTIVITY else item_likes
        if np.isnan(values).all():
            continue
        thirds = _divide_by_thirds(values)
        by_user = strata == ACTIVITY
        of_targets = np.repeat(thirds, np.diff(targets.ranks.indptr)) if by_user else thirds[targets.items]
        for number, name in enumerate(THIRDS):
            inside, part = values[thirds == number], targets.select(of_targets == number)
            for metric, compute in COMPUTE_METRICS.items() if len(part.users) else ():
                mean = mean_and_error(compute(part.ranks))
                ends, means = (float(inside.min()), float(inside.max())), (mean.value, mean.standard_error, mean.users)
                yield StratumRow(metric, strata, name, *ends, *means, len(part.items))


def _divide_by_thirds(values: np.ndarray) -> np.ndarray:
    """Return the number of each value's third, int8; -1 for NaN."""
    known = np.sort(values[~np.isnan(values)])
    cuts = [known[-(-len(known) * part // 3) - 1] for part in (1, 2)]
    # Values equal to a cut are below it.
    return np.where(np.isnan(values), -1, np.searchsorted(cuts, values)).astype(np.int8)
