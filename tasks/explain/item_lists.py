"""The recommended items of one user by one model, and the explanation of an item's rank among the published ones."""

from dataclasses import dataclass

import numpy as np

from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.recommend import Recommender


@dataclass(frozen=True)
class RecommendedItem:
    """One recommended item.

    Attributes:
        users: number of users who like it.
        like: mean and standard deviation of the like probability; None if the model has none.
        held_out: whether the user likes the item, but that like was not among the training edges.
        seen: whether the item is in the history that the model used.
        because: (item id, its contribution to the score) of the items in the history that contributed most.
    """

    item_id: str
    score: float
    users: int
    like: tuple[float, float] | None
    held_out: bool
    because: tuple[tuple[str, float], ...]
    seen: bool = False


@dataclass(frozen=True)
class ModelRecommendations:
    """The recommended items of one model.

    Attributes:
        score: the model's score that ordered the items.
        protocol: the protocol on whose training edges the model was fitted.
        in_training: whether the user is a training user of the fit; otherwise their history was folded in.
        history_size: number of items of the history that the model used.
    """

    model: str
    score: str
    protocol: str
    in_training: bool
    history_size: int
    items: list[RecommendedItem]

    @property
    def largest_contribution(self) -> float:
        """The largest contribution to a score of the list, by absolute value; 0 without any."""
        return max((abs(value) for item in self.items for _, value in item.because), default=0.0)


def load_published_list(recommender: Recommender, user_id: str, top: int) -> ModelRecommendations:
    """Load a user's first `top` items: those published, then those that the model ranks next."""
    users = dict(zip(recommender.items["item_id"], recommender.items["users"], strict=True))
    recommended, history = recommender.recommend_for(user_id, n=top), set(recommender.history(user_id))
    items = [
        RecommendedItem(
            row["item_id"],
            row["score"],
            users[row["item_id"]],
            None if row["like_mean"] is None else (row["like_mean"], row["like_sd"]),
            False,
            tuple(recommender.reasons_for(user_id, row["item_id"])),
            row["item_id"] in history,
        )
        for row in recommended.iter_rows(named=True)
    ]
    return ModelRecommendations(recommender.model, recommender.score, ALL_EDGES, True, len(history), items)


def explain_rank(recommender: Recommender, user_id: str, item_id: str, top: int) -> str:
    """Describe an item's rank for a user, the score that it lacks, and what contributed most."""
    if recommender.unknown([item_id]):
        return (
            f"{item_id}: is not recommended to anybody; no user in {recommender.dataset} likes it, or the logs lack it."
        )
    column = recommender.names.column_index(item_id)
    item_id, history = recommender.names.ids[column], recommender.history(user_id)
    is_excluded, is_seen = recommender.seen == "exclude", item_id in history
    if is_excluded and is_seen:
        return f"{item_id}: is not recommended to {user_id}, who likes it: the items of a history are left out."
    scores = recommender.scores_for(user_id)
    candidates = np.ones(len(scores), dtype=bool)
    if is_excluded:
        candidates[[recommender.names.column_index(liked) for liked in history]] = False
    ahead = candidates & ((scores > scores[column]) | ((scores == scores[column]) & (np.arange(len(scores)) < column)))
    rank = 1 + int(np.count_nonzero(ahead))
    ranking = f"{recommender.model}/{recommender.score}"
    to_whom = f"{user_id}, who likes it already" if is_seen else user_id
    text = f"{item_id}: rank {rank:,} of {np.count_nonzero(candidates):,} for {to_whom}, by {ranking}"
    text += f"; its score is {scores[column]:.4g}"
    if rank > top:
        last = np.sort(scores[candidates])[-top]
        text += f", and that of rank {top:,} is {last:.4g}, so it is not among the first {top:,}"
    contributions = recommender.reasons_for(user_id, item_id)
    if contributions:
        text += ". Largest contributions: " + ", ".join(f"{liked} ({value:+.3g})" for liked, value in contributions)
    elif recommender.sums_over_history:
        text += ". No item of the history contributes to it"
    return f"{text}."
