"""Ranking metrics of users by name at any cut-off, `ndcg@50` or `map`, from the ranks of the users' targets.

`models.evaluation.definitions` has the formulas. Where `models.evaluation.metrics` has the same metric at a fixed k,
the values are equal bit for bit.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from oneclass.models.evaluation.metrics import compute_edge_ranks, compute_ndcg, count_hits, sum_by_user
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
