"""What is published for one user, and why an item is among it or is not."""

import numpy as np

from oneclass.tasks.explain.lists import ModelRecommendations, RecommendedItem
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.recommend import Recommender


def load_published_list(recommender: Recommender, user_id: str, top: int) -> ModelRecommendations:
    """The first items of a user's published recommendations; past as many as are published, what would follow."""
    users = dict(zip(recommender.items["item_id"], recommender.items["users"], strict=True))
    found = recommender.recommend_for(user_id, n=top)
    items = [
        RecommendedItem(
            row["item_id"],
            row["score"],
            users[row["item_id"]],
            None if row["like_mean"] is None else (row["like_mean"], row["like_sd"]),
            False,
            tuple(recommender.reasons_for(user_id, row["item_id"])),
        )
        for row in found.iter_rows(named=True)
    ]
    return ModelRecommendations(
        recommender.model, recommender.score, ALL_EDGES, True, len(recommender.history(user_id)), items
    )


def explain_rank(recommender: Recommender, user_id: str, item_id: str, top: int) -> str:
    """At which place an item is for a user, by how much it is behind, and which items of the history speak for it."""
    if recommender.unknown([item_id]):
        return f"{item_id}: is not recommended to anybody, for nobody in {recommender.dataset} likes it, or the logs lack it."
    history = recommender.history(user_id)
    if item_id in history:
        return f"{item_id}: is not recommended to {user_id}, who likes it: the items of a history are left out."
    scores = recommender.scores_for(user_id)
    open_to = np.ones(len(scores), dtype=bool)
    open_to[[recommender.names.column_index(one) for one in history]] = False
    column = recommender.names.column_index(item_id)
    ahead = open_to & ((scores > scores[column]) | ((scores == scores[column]) & (np.arange(len(scores)) < column)))
    place = 1 + int(np.count_nonzero(ahead))
    words = f"{item_id}: place {place:,} of {np.count_nonzero(open_to):,} for {user_id}, by {recommender.model}/{recommender.score}"
    words += f"; its score is {scores[column]:.4g}"
    if place > top:
        last = np.sort(scores[open_to])[-top]
        words += f", and that of place {top:,} is {last:.4g}, so it is not among the first {top:,}"
    added = recommender.reasons_for(user_id, item_id)
    if added:
        words += ". For it speak " + ", ".join(f"{one} ({value:+.3g})" for one, value in added)
    elif recommender.sums_over_history:
        words += ". No item of the history speaks for it"
    return f"{words}."
