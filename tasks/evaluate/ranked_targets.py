"""The ranks of users' targets in the lists of one score: the input of metrics at any k, of one's own, and by strata."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np

from oneclass.models.evaluation.metrics_at_k import UserMetric, concatenate_ranks, select_targets
from oneclass.models.evaluation.ranking import TargetRanks


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


ComputeMetric = Callable[[RankedTargets], np.ndarray]  # to float64 (users,)


def from_ranks(metric: UserMetric) -> ComputeMetric:
    """Return a metric that reads nothing but the ranks."""
    return lambda targets: metric(targets.ranks)
