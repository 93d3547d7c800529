"""Ranks of a part's targets in the full rankings of a model, computed in blocks of users.

No users x items array is ever held; the result has one number per user and metric.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.evaluation import metrics
from oneclass.models.evaluation.beyond_accuracy import TOP_K, Exposure
from oneclass.models.evaluation.metrics import DegreeBin, concatenate_ranks, find_metric, select_targets
from oneclass.models.evaluation.ranking import CannotRank, TargetRanks, rank_targets
from oneclass.models.evaluation.ranks_apart import (
    KNOWN_RANK,
    average_known_ranks,
    rank_known_items,
    rank_new_and_repeated,
    rank_new_items,
)
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.orchestration import progress
from oneclass.tasks.stores.matrices import Part


class RankedTargets(NamedTuple):
    """The ranks of the targets of some users by one score.

    Attributes:
        users: int32 (users,), the curated `user_index` of the users with a target that is ranked.
        history_lengths: int64 (users,), the number of items in their histories.
        items: int32 (targets,), the column of each target.
        ranks: of these targets; if new items are ranked apart, those of the known items.
    """

    users: np.ndarray
    history_lengths: np.ndarray
    items: np.ndarray
    ranks: TargetRanks

    @classmethod
    def concatenate(cls, blocks: Sequence[Self]) -> Self:
        """Concatenate the blocks in their order."""
        users, lengths, items = (
            np.concatenate([getattr(block, name) for block in blocks]) for name in ("users", "history_lengths", "items")
        )
        return cls(users, lengths, items, concatenate_ranks([block.ranks for block in blocks]))

    def select(self, chosen: np.ndarray) -> Self:
        """Leave out targets, which stay in the rankings as candidates, and users without another target.

        Args:
            chosen: bool (targets,), those to keep.
        """
        rows, ranks = select_targets(self.ranks, chosen)
        return self._replace(
            users=self.users[rows], history_lengths=self.history_lengths[rows], items=self.items[chosen], ranks=ranks
        )


class TargetRankMetrics(NamedTuple):
    """One score's ranks for the users of a part that have a target.

    Attributes:
        of_users: values of `metrics.compute_user_metrics`, of `average_known_ranks`, of `rank_new_and_repeated` if seen
            items are ranked, and of `rank_new_items` if these are ranked apart, and of further metrics.
        edge_ranks: S of each of their targets.
        targets: their ranks; if new items are ranked apart, those of the known items.
    """

    of_users: dict[str, np.ndarray]
    edge_ranks: np.ndarray
    targets: RankedTargets

    @classmethod
    def concatenate(cls, blocks: Sequence[Self]) -> Self:
        """Concatenate the blocks in their order."""
        of_users = {name: np.concatenate([block.of_users[name] for block in blocks]) for name in blocks[0].of_users}
        edge_ranks = np.concatenate([block.edge_ranks for block in blocks])
        return cls(of_users, edge_ranks, RankedTargets.concatenate([block.targets for block in blocks]))


def rank_part_targets(model: Model, score: str, part: Part) -> TargetRankMetrics:
    """Rank the users' targets by one score of a model."""
    return rank_targets_by_score(model, part, names=[score])[score]


def rank_targets_by_score(
    model: Model,
    part: Part,
    exposures: Mapping[str, Exposure] = MappingProxyType({}),
    further: Sequence[str] = (),
    *,
    names: Sequence[str] | None = None,
    on_progress: bool = True,
) -> dict[str, TargetRankMetrics]:
    """Rank the users' targets by several scores of a model, in one pass over the users.

    Args:
        exposures: counters of these users' top recommendations, by score.
        further: names of further metrics at any k (`models.evaluation.metrics`).
        names: of the scores; by default all.
        on_progress: report progress after every block.

    Returns:
        by score; empty if no user has a target.

    Raises:
        OneclassError: a user's items cannot be ranked; it names the model, the score and the user.
    """
    blocks: dict[str, list[TargetRankMetrics]] = {}
    for block in _iterate_blocks(model, part, on_progress):
        if names is None and len(model.score_names) > 1:
            scored = model.iterate_scores(block.histories, users=block.rows)
        else:
            one_by_one = names or model.score_names
            scored = ((name, model.scores(block.histories, users=block.rows, score=name)) for name in one_by_one)
        for score, scores in scored:
            ranks = _rank_block(model, score, scores, block, exposures.get(score), further)
            blocks.setdefault(score, []).append(ranks)
    return {score: TargetRankMetrics.concatenate(of_score) for score, of_score in blocks.items()}


def _name_targets(block: Part, ranks: TargetRanks, rows: np.ndarray | None = None) -> RankedTargets:
    """Return ranks with the users and items that they are of.

    Args:
        rows: those of the users with a known item to be found, if new items are ranked apart.
    """
    users, lengths, items = block.users, np.diff(block.histories.indptr), block.targets.indices
    if rows is None or block.new_items is None:
        return RankedTargets(users, lengths, items, ranks)
    return RankedTargets(users[rows], lengths[rows], items[~np.isin(items, block.new_items)], ranks)


def _iterate_blocks(model: Model, part: Part, on_progress: bool) -> Iterator[Part]:
    """Yield the users with a target, as many at a time as a model scores."""
    users, size = users_with_targets(part), model.users_at_once
    starts: Iterable[int] = range(0, len(users), size)
    if on_progress:
        starts = progress.iterate_with_progress(starts, f"{model.name} ranks for {len(users):,} users")
    for start in starts:
        yield part.select(users[start : start + size])


def _rank_block(
    model: Model,
    score: str,
    scores: np.ndarray,
    block: Part,
    exposure: Exposure | None,
    further: Sequence[str],
) -> TargetRankMetrics:
    if block.new_items is not None:
        return _rank_apart(model, score, scores, block, block.new_items, exposure, further)
    try:
        ranks = rank_targets(scores, block.excluded, block.targets, 0 if exposure is None else TOP_K)
        apart = rank_new_and_repeated(scores, block.histories, block.targets) if block.seen_items else {}
        if exposure is not None:
            exposure.add(ranks.first, block.histories)
    except CannotRank as error:
        raise _explain(model, score, block.users[error.row], error) from error
    return _compute_metrics(model, _name_targets(block, ranks), further, apart)


def _rank_apart(
    model: Model,
    score: str,
    scores: np.ndarray,
    block: Part,
    new_items: np.ndarray,
    exposure: Exposure | None,
    further: Sequence[str],
) -> TargetRankMetrics:
    """Rank known and new items apart; metrics are NaN for users without a target of their kind."""
    if np.isnan(scores).any():
        row = int(np.argmax(np.isnan(scores).any(axis=1)))
        raise _explain(model, score, block.users[row], CannotRank(row, "a score is NaN"))
    of_new = rank_new_items(scores, block.targets, new_items)
    length = 0 if exposure is None else TOP_K
    rows, ranks = rank_known_items(scores, block.excluded, block.targets, new_items, length)
    if exposure is not None:
        exposure.add(ranks.first, block.histories[rows])
    found = _compute_metrics(model, _name_targets(block, ranks, rows), further)
    of_users = of_new
    for name, values in found.of_users.items():
        of_users[name] = np.full(len(scores), np.nan)
        of_users[name][rows] = values
    return found._replace(of_users=of_users)


def _compute_metrics(
    model: Model,
    targets: RankedTargets,
    further: Sequence[str],
    others: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> TargetRankMetrics:
    """Compute the metrics of the ranks of a block of users.

    Args:
        model: the one that ranked.
        others: further values of the users, by name.
    """
    known = {KNOWN_RANK: average_known_ranks(targets.ranks, model.item_degrees[targets.items] > 0)}
    at_k = {name: metric(targets.ranks) for name in further if (metric := find_metric(name)) is not None}
    return TargetRankMetrics(
        metrics.compute_user_metrics(targets.ranks) | known | dict(others) | at_k,
        metrics.compute_edge_ranks(targets.ranks),
        targets,
    )


def _explain(model: Model, score: str, user: int, error: CannotRank) -> OneclassError:
    return OneclassError(
        f"{model.name}, score {score!r}, user_index {user}: {error.reason}; its items cannot be ranked"
    )


def users_with_targets(part: Part) -> np.ndarray:
    """Return the positions in the part of the users that have a target; nobody of cold_items without a new item."""
    if part.new_items is not None and not len(part.new_items):
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(np.diff(part.targets.indptr))


def target_degrees(user_degrees: np.ndarray, item_degrees: np.ndarray, targets: csr_matrix) -> dict[str, np.ndarray]:
    """Return the training degrees of every target's user and item.

    Args:
        user_degrees: (users,) of the rows of `targets`.
        item_degrees: (items,).
    """
    return {
        "user": np.repeat(user_degrees, np.diff(targets.indptr)),
        "item": item_degrees[targets.indices],
    }


def group_ranks_by_degree(edge_ranks: np.ndarray, sides: dict[str, np.ndarray]) -> list[tuple[str, DegreeBin]]:
    """Group the ranks of the targets by the degrees of `target_degrees`, as (side, bin)."""
    return [(side, bin_) for side, degrees in sides.items() for bin_ in metrics.group_by_degree(edge_ranks, degrees)]
