"""The ranks of a part's targets in the full rankings of a model, a block of users at a time.

So a users x items array is never held; what is kept of a user is one number a metric.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix

from models.base import Model
from models.evaluation import metrics
from models.evaluation.beyond_accuracy import FIRST, Exposure
from models.evaluation.metrics import DegreeBin
from models.evaluation.ranking import NotRankable, target_ranks
from models.numerics.threads import kernel_threads
from tasks.errors import OneclassError
from tasks.orchestration import progress
from tasks.stores.matrices import Part

EachScore = Callable[[csr_matrix, np.ndarray | None], Iterator[tuple[str, np.ndarray]]]


class Ranks(NamedTuple):
    """One score's ranks for the users of a part that have a target.

    Attributes:
        of_users: `metrics.user_metrics`.
        of_edges: S of each of their targets.
    """

    of_users: dict[str, np.ndarray]
    of_edges: np.ndarray

    @classmethod
    def joined(cls, blocks: Sequence[Self]) -> Self:
        """The ranks of the users of all blocks, in their order."""
        of_users = {name: np.concatenate([one.of_users[name] for one in blocks]) for name in blocks[0].of_users}
        return cls(of_users, np.concatenate([one.of_edges for one in blocks]))


def rank(model: Model, score: str, part: Part) -> Ranks:
    """The ranks of the users' targets by one score of a model."""

    def scores(histories: csr_matrix, users: np.ndarray | None) -> Iterator[tuple[str, np.ndarray]]:
        yield score, model.scores(histories, users=users, score=score)

    return _rank(model, scores, part)[score]


def rank_each(
    model: Model, part: Part, exposures: Mapping[str, Exposure] = MappingProxyType({}), *, told: bool = True
) -> dict[str, Ranks]:
    """The ranks of the users' targets by every score of a model, in one pass over the users.

    Args:
        exposures: by score; count these users' first recommendations, where they are wanted.
        told: say how far it is, after every block.

    Returns:
        by score; empty where no user has a target.

    Raises:
        OneclassError: a user's items cannot be ranked; it names the model, the score and the user.
    """
    return _rank(model, lambda histories, users: model.each_score(histories, users=users), part, exposures, told)


def _rank(
    model: Model,
    each: EachScore,
    part: Part,
    exposures: Mapping[str, Exposure] = MappingProxyType({}),
    told: bool = True,
) -> dict[str, Ranks]:
    users, size = with_targets(part), model.users_at_once
    starts = range(0, len(users), size)
    found: dict[str, list[Ranks]] = {}
    for start in progress.over(starts, f"{model.name} ranks for {len(users):,} users") if told else starts:
        block = users[start : start + size]
        rows = None if part.rows is None else part.rows[block]
        of_block = Part(part.histories[block], part.targets[block], part.users[block], rows)
        for score, scores in each(of_block.histories, rows):
            ranks = _rank_block(model, score, scores, of_block, exposures.get(score))
            found.setdefault(score, []).append(ranks)
    return {score: Ranks.joined(blocks) for score, blocks in found.items()}


def _rank_block(model: Model, score: str, scores: np.ndarray, block: Part, exposure: Exposure | None) -> Ranks:
    try:
        with kernel_threads(model.threads):
            ranks = target_ranks(scores, block.histories, block.targets, 0 if exposure is None else FIRST)
        if exposure is not None:
            exposure.add(ranks.first, block.histories)
    except NotRankable as error:
        user = int(block.users[error.row])
        raise OneclassError(
            f"{model.name}, score {score!r}, user_index {user}: {error.reason}; its items cannot be ranked"
        ) from error
    return Ranks(metrics.user_metrics(ranks), metrics.edge_ranks(ranks))


def with_targets(part: Part) -> np.ndarray:
    """Positions in the part of the users that have a target."""
    return np.flatnonzero(np.diff(part.targets.indptr))


def degrees_of_edges(user_degrees: np.ndarray, item_degrees: np.ndarray, targets: csr_matrix) -> dict[str, np.ndarray]:
    """Training degrees of the user and of the item of every target.

    Args:
        user_degrees: (users,) of the rows of `targets`.
        item_degrees: (items,).
    """
    return {
        "user": np.repeat(user_degrees, np.diff(targets.indptr)),
        "item": item_degrees[targets.indices],
    }


def by_degree(edge_ranks: np.ndarray, sides: dict[str, np.ndarray]) -> list[tuple[str, DegreeBin]]:
    """(side, bin): the ranks of the targets by the degrees of `degrees_of_edges`, side by side."""
    return [(side, one) for side, degrees in sides.items() for one in metrics.by_degree(edge_ranks, degrees)]
