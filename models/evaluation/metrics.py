"""Ranking metrics of users by name at any cut-off, their means, and paired comparisons, from the ranks of targets.

`models.evaluation.definitions` has the formulas of the metrics.

P-values are corrected for the number of comparisons by Holm (1979), "A simple sequentially rejective multiple test
procedure", Hsu (1984), "Constrained simultaneous confidence intervals for multiple comparisons with the best", and
Benjamini and Hochberg (1995), "Controlling the false discovery rate".

Everything is float64 and summed in the order of the users, so that the bits do not depend on the number of threads.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import stdtr

from oneclass.models.evaluation.ranking import TargetRanks

UserMetric = Callable[[TargetRanks], np.ndarray]  # of users with a target each, to float64 (users,)

NAME = re.compile(r"([a-z_]+)(?:@([1-9][0-9]*))?")
ALIASES = {
    "hr": "hit_rate",
    "hit": "hit_rate",
    "hitrate": "hit_rate",
    "average_precision": "map",
    "reciprocal_rank": "mrr",
    "mpr": "percentile_rank",
    "mean_percentile_rank": "percentile_rank",
    "expected_percentile_rank": "percentile_rank",
}
PERCENTILES = {"rank_p05": 5, "rank_p25": 25, "median_rank": 50, "rank_p75": 75, "rank_p95": 95}


@dataclass(frozen=True)
class Mean:
    """A metric over users.

    Attributes:
        value: its mean over users, or a percentile of the users' mean ranks.
        standard_error: of the mean; None if it is not defined.
        users: the number of users with a value.
    """

    value: float
    standard_error: float | None
    users: int


@dataclass(frozen=True)
class Comparison:
    """The mean of the paired differences between two metrics of the same users.

    Attributes:
        difference: mean of first minus second.
        standard_error: of that mean, by `compare_paired`; None for fewer than two users.
        p_value: two-sided, of the paired t-test; None for fewer than two users.
        users: the number of pairs.
    """

    difference: float
    standard_error: float | None
    p_value: float | None
    users: int


@dataclass(frozen=True)
class DegreeBin:
    """Ranks of the edges whose user (or item) has a degree from `low` to `high`, both included."""

    low: int
    high: int
    edges: int
    mean: float
    percentiles: tuple[float, ...]


def compute_edge_ranks(ranks: TargetRanks, *, midtie: bool = False) -> np.ndarray:
    """S of every target: the share of its user's candidates that have a lower score.

    This is eq. 23 of the random-graph paper and eq. 12 of the paper on paired symbols. The inequality is strict and the
    target itself is a candidate, so that 0 <= S < 1. With `midtie`, a tie with another candidate counts as one half.

    Returns:
        float64 (targets,).
    """
    won = ranks.worse + 0.5 * ranks.tied if midtie else ranks.worse
    return won / np.repeat(ranks.candidates, np.diff(ranks.indptr))


def compute_user_metrics(ranks: TargetRanks) -> dict[str, np.ndarray]:
    """Every metric of users that each run has, by name.

    Args:
        ranks: of users with at least one target each.

    Returns:
        float64 (users,) each.

    Raises:
        ValueError: a user without a target.
    """
    counts = np.diff(ranks.indptr)
    if not counts.all():
        raise ValueError(f"user {int(np.argmin(counts))} of the block has no target; leave such users out")
    return {name: metric(ranks) for name, metric in OF_EVERY_RUN.items()}


def average_over_users(values: dict[str, np.ndarray]) -> dict[str, Mean]:
    """The means of `compute_user_metrics`, and the percentiles of the users' mean ranks, linearly interpolated.

    The standard error of a mean is std / sqrt(users), with n in the variance, as in Liang et al. (2018). Percentiles
    have no standard error, nor has the mean of a single user. Users whose value is NaN, because a metric is not defined
    for them, are left out, and a metric without any other user.
    """
    means = {metric: mean_and_error(of_users) for metric, of_users in values.items() if not np.isnan(of_users).all()}
    ranks = _drop_missing(values["mean_rank"])
    if not len(ranks):
        return means
    points = zip(PERCENTILES, _rank_percentiles(ranks), strict=True)
    return means | {name: Mean(point, None, len(ranks)) for name, point in points}


def compare_paired(first: np.ndarray, second: np.ndarray, folds: int = 1) -> Comparison:
    """The paired t-test between two arrays of values, (users,) each, in the same order of users; NaN are left out.

    Equal arrays have a p-value of 1; arrays that differ by a constant have a p-value of 0.

    Args:
        folds: J, how many folds the users are in. The models of folds share training users, so the variance is taken
            as 1 + J / (J - 1) times that of independent users (Nadeau and Bengio 2003).
    """
    differences = _drop_missing(first - second)
    users, difference = len(differences), float(np.mean(differences))
    if users < 2:
        return Comparison(difference, None, None, users)
    inflation = 1 + folds / (folds - 1) if folds > 1 else 1.0
    error = float(np.std(differences, ddof=1) * np.sqrt(inflation / users))
    if error == 0:
        return Comparison(difference, 0.0, float(difference == 0), users)
    return Comparison(difference, error, float(2 * stdtr(users - 1, -abs(difference / error))), users)


def group_by_degree(ranks: np.ndarray, degrees: np.ndarray) -> list[DegreeBin]:
    """Ranks of edges, grouped by the degree of their user (or item) in the bins 0, 1, 2-3, 4-7, 8-15, ...

    Args:
        ranks: float64 (edges,), S of each edge.
        degrees: (edges,), the training degree of its user, or of its item.

    Returns:
        the bins with an edge, by degree; the percentiles are in the order of `PERCENTILES`.
    """
    bins, found = log_bins(degrees), []
    for number in np.unique(bins):
        inside = ranks[bins == number]
        found.append(DegreeBin(*bin_bounds(number), len(inside), float(np.mean(inside)), _rank_percentiles(inside)))
    return found


def log_bins(degrees: np.ndarray) -> np.ndarray:
    """The bin of each degree: 0 for degree 0, else 1 + floor(log2 degree)."""
    return np.frexp(degrees.astype(np.float64))[1]


def bin_bounds(number: int) -> tuple[int, int]:
    """Lowest and highest degree of a bin of `log_bins`."""
    return (0, 0) if number == 0 else (1 << (int(number) - 1), (1 << int(number)) - 1)


def mean_and_error(values: np.ndarray) -> Mean:
    """The mean of float64 (users,), with std / sqrt(users) as its standard error; NaN are left out."""
    values = _drop_missing(values)
    users = len(values)
    return Mean(float(np.mean(values)), float(np.std(values) / np.sqrt(users)) if users > 1 else None, users)


def _drop_missing(values: np.ndarray) -> np.ndarray:
    return values[~missing] if (missing := np.isnan(values)).any() else values


def _rank_percentiles(ranks: np.ndarray) -> tuple[float, ...]:
    return tuple(np.percentile(ranks, list(PERCENTILES.values())).tolist())


ALPHA = 0.05  # a corrected p-value below it marks a difference


def adjust_against_best(p_values: np.ndarray) -> np.ndarray:
    """Correct the p-values of all lists against the best one, which the same users picked.

    With m lists, hypothesis i is "list i is one of the best": no list is truly better (Hsu 1984). If it holds, each of
    the m - 1 one-sided tests "list j is better than list i" is a valid test. So m - 1 times the one-sided p-value
    against the observed best, whichever that is, is a valid p-value of hypothesis i (Bonferroni). Holm's procedure over
    the m hypotheses then bounds the chance that a table calls any of its truly best lists worse, for any number of
    equal lists and any correlation between them.

    Hsu's own intervals do not: they allow for ties, so that of several lists which are all the best they may call all
    but one no better. Nor does Holm's procedure over the m - 1 comparisons alone, as if the best had been named
    beforehand.

    Args:
        p_values: float64 (lists - 1,), two-sided, of each other list against the best.
    """
    others = len(p_values)
    return adjust_holm(np.asarray(p_values) * others / 2, others + 1)


def adjust_holm(p_values: np.ndarray, hypotheses: int | None = None) -> np.ndarray:
    """Correct p-values so that at most a share ALPHA of families has a wrong rejection (Holm 1979).

    Args:
        p_values: float64 (tests,).
        hypotheses: size of the family, at least the number of tests, which it is by default; the rest counts as true.
    """
    p_values = np.asarray(p_values)
    order, adjusted = np.argsort(p_values), np.empty(len(p_values))
    factors = (hypotheses or len(p_values)) - np.arange(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1)
    return adjusted


def adjust_benjamini_hochberg(p_values: np.ndarray) -> np.ndarray:
    """Correct p-values so that, of the rejections, a share ALPHA at most is wrong on average (Benjamini 1995).

    Args:
        p_values: float64 (tests,).
    """
    p_values = np.asarray(p_values)
    order, adjusted = np.argsort(p_values)[::-1], np.empty(len(p_values))
    factors = len(p_values) / np.arange(len(p_values), 0, -1)
    adjusted[order] = np.minimum(np.minimum.accumulate(factors * p_values[order]), 1)
    return adjusted


def find_metric(name: str) -> UserMetric | None:
    """Return the metric with a name, such as `precision@7`, `MRR` or `hr@10`; None if there is none.

    Upper case is as good as lower case. `map`, `mrr` and `ndcg` without k are of the whole ranking.
    """
    if not (match := NAME.fullmatch(name.lower())):
        return None
    base, k = ALIASES.get(match[1], match[1]), match[2]
    if k is None:
        return WITHOUT_K.get(base)
    return partial(AT_K[base], k=int(k)) if base in AT_K else None


def concatenate_ranks(blocks: Sequence[TargetRanks]) -> TargetRanks:
    """Join the ranks of blocks of users, in their order."""
    counts = np.concatenate([np.diff(block.indptr) for block in blocks])
    joined = {
        name: np.concatenate([getattr(block, name) for block in blocks])
        for name in ("worse", "tied", "position", "candidates", "first")
    }
    return TargetRanks(np.append(0, np.cumsum(counts)), **joined)


def select_targets(ranks: TargetRanks, chosen: np.ndarray) -> tuple[np.ndarray, TargetRanks]:
    """Leave out targets, which stay in the rankings as candidates that are none.

    Args:
        chosen: bool (targets,), those to keep.

    Returns:
        int64 (users left,), the positions of the users with a target that is kept, and the ranks of these.
    """
    counts = np.diff(np.append(0, np.cumsum(chosen))[ranks.indptr])
    users = np.flatnonzero(counts)
    of_targets = {name: getattr(ranks, name)[chosen] for name in ("worse", "tied", "position")}
    of_users = {name: getattr(ranks, name)[users] for name in ("candidates", "first")}
    return users, replace(ranks, indptr=np.append(0, np.cumsum(counts[users])), **of_targets, **of_users)


def sum_by_user(ranks: TargetRanks, of_targets: np.ndarray) -> np.ndarray:
    """Sum a value of each target over each user's targets, in their order: (targets,) to (users,)."""
    return np.add.reduceat(of_targets, ranks.indptr[:-1])


def count_hits(ranks: TargetRanks, k: int) -> np.ndarray:
    """Count each user's targets among the first k candidates, float64 (users,)."""
    return sum_by_user(ranks, (ranks.position < k).astype(np.float64))


def compute_ndcg(ranks: TargetRanks, k: int) -> np.ndarray:
    """Compute the binary nDCG of the first k candidates, float64 (users,)."""
    discounts = 1 / np.log2(np.arange(2, k + 2))
    gains = np.append(discounts, 0)[np.minimum(ranks.position, k)]
    ideal = np.cumsum(discounts)[np.minimum(np.diff(ranks.indptr), k) - 1]
    # The sums are in different orders, so the ratio may exceed 1 by a rounding error.
    return np.minimum(sum_by_user(ranks, gains) / ideal, 1)


def _precision(ranks: TargetRanks, k: int) -> np.ndarray:
    return count_hits(ranks, k) / k


def _recall(ranks: TargetRanks, k: int) -> np.ndarray:
    return count_hits(ranks, k) / np.minimum(np.diff(ranks.indptr), k)


def _recall_of_all(ranks: TargetRanks, k: int) -> np.ndarray:
    return count_hits(ranks, k) / np.diff(ranks.indptr)


def _hit_rate(ranks: TargetRanks, k: int) -> np.ndarray:
    return (count_hits(ranks, k) > 0).astype(np.float64)


def _average_precision(ranks: TargetRanks, k: int) -> np.ndarray:
    counts = np.diff(ranks.indptr)
    position = ranks.position[np.lexsort((ranks.position, np.repeat(np.arange(len(counts)), counts)))]
    hits = np.arange(1, len(position) + 1) - np.repeat(ranks.indptr[:-1], counts)
    return sum_by_user(ranks, np.where(position < k, hits / (position + 1), 0)) / np.minimum(counts, k)


def _reciprocal_rank(ranks: TargetRanks, k: int) -> np.ndarray:
    first = np.minimum.reduceat(ranks.position, ranks.indptr[:-1])
    return np.where(first < k, 1 / (first + 1), 0)


def _of_whole_ranking(metric: Callable[..., np.ndarray], ranks: TargetRanks) -> np.ndarray:
    return metric(ranks, k=int(ranks.candidates.max(initial=1)))


def _mean_rank(ranks: TargetRanks, *, midtie: bool) -> np.ndarray:
    return sum_by_user(ranks, compute_edge_ranks(ranks, midtie=midtie)) / np.diff(ranks.indptr)


def _auc(ranks: TargetRanks) -> np.ndarray:
    """Without a sort: each pair of a user's targets counts 1 in the sum, as one worse or as two ties of one half."""
    counts = np.diff(ranks.indptr).astype(np.float64)
    won = sum_by_user(ranks, ranks.worse + 0.5 * ranks.tied) - counts * (counts - 1) / 2
    return _divide_if_positive(won, counts * (ranks.candidates - counts))


def _percentile_rank(ranks: TargetRanks) -> np.ndarray:
    counts = np.diff(ranks.indptr)
    before = np.repeat(ranks.candidates, counts) - 1 - ranks.worse - 0.5 * ranks.tied
    return _divide_if_positive(sum_by_user(ranks, before), counts * (ranks.candidates - 1.0))


def _divide_if_positive(values: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Divide; NaN where the divisor is 0, as for a user without another candidate."""
    return np.divide(values, by, out=np.full(len(values), np.nan), where=by > 0)


AT_K: dict[str, Callable[..., np.ndarray]] = {
    "precision": _precision,
    "recall": _recall,
    "recall_of_all": _recall_of_all,
    "hit_rate": _hit_rate,
    "map": _average_precision,
    "mrr": _reciprocal_rank,
    "ndcg": compute_ndcg,
}
WITHOUT_K: dict[str, UserMetric] = {
    **{name: partial(_of_whole_ranking, AT_K[name]) for name in ("map", "mrr", "ndcg")},
    "auc": _auc,
    "mean_rank": partial(_mean_rank, midtie=False),
    "mean_rank_midtie": partial(_mean_rank, midtie=True),
    "percentile_rank": _percentile_rank,
}
OF_EVERY_RUN: dict[str, UserMetric] = {
    **{f"{name}@{k}": partial(AT_K[name], k=k) for name, k in (("recall", 20), ("recall", 50), ("recall_of_all", 20))},
    **{f"ndcg@{k}": partial(compute_ndcg, k=k) for k in (100, 20)},
    **{name: WITHOUT_K[name] for name in ("mean_rank", "mean_rank_midtie")},
}
