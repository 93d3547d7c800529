"""`like` on the demo's data against what it estimates: the ratio of the densities of likes and of negatives.

Negatives are drawn from pi and not from what a user considered and disliked, so that `like` tends to this
ratio and not to the coin of the generative story. A tenth of the likes is left out of the fit; they are
judged, mixed with fresh negatives in the proportion of the fit.
"""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from models.negatives import alias_table, draw_negatives
from models.random_graph import RandomGraph, RandomGraphSettings
from models.random_graph_edges import shards
from models.random_graph_inference import adjacency
from tasks.demo import DemoSettings, tell

KEPT = 0.9
DEMO = DemoSettings()


def considered(story, counts):
    """Probability of every edge of H given the degrees: the random bipartite graph of greatest entropy."""
    items = np.repeat(np.arange(counts[1]), np.diff(story.starts))
    user_degrees, item_degrees = (
        np.bincount(story.users, minlength=counts[0]),
        np.bincount(items, minlength=counts[1]),
    )
    a, b = (degrees / np.sqrt(len(items)) for degrees in (user_degrees, item_degrees))
    for _ in range(40):
        a = user_degrees / (b / (1 + np.outer(a, b))).sum(axis=1)
        b = item_degrees / (a[:, None] / (1 + np.outer(a, b))).sum(axis=0)
    return np.outer(a, b) / (1 + np.outer(a, b))


def drawn_as_negative(model, likes, seen):
    """Probability that a user's negatives hold an item, for every item that is no like (Hajek 1964)."""
    wanted = np.diff(likes[0])
    times = np.geomspace(0.5, 40 / model.weights[model.weights > 0].min(), 64)
    taken = np.array([(-np.expm1(-model.weights * t) * ~seen).sum(axis=1) for t in times])  # (64, users)
    at = np.array([np.interp(wanted[user], taken[:, user], times) for user in range(len(wanted))])
    return -np.expm1(-model.weights * at[:, None])


@pytest.fixture(scope="module")
def judged():
    """(like, its standard deviation, true ratio, whether it was a like) of every judged pair."""
    counts, rng = (DEMO.users, DEMO.items), np.random.default_rng(5)
    story = tell(DEMO, 1)
    items = np.repeat(np.arange(DEMO.items), np.diff(story.starts))
    users, items = story.users[story.liked], items[story.liked]
    kept = rng.random(len(users)) < KEPT
    matrix = csr_matrix((np.ones(kept.sum()), (users[kept], items[kept])), shape=counts)
    matrix.sort_indices()
    model = RandomGraph(RandomGraphSettings(learn_tau=False)).fit(matrix)
    likes = adjacency(matrix)
    seen = matrix.toarray() > 0
    coin = 1 / (1 + np.exp(-(story.traits.users @ story.traits.items.T + story.traits.item_bias)))
    like_rate = KEPT * considered(story, counts) * coin
    negative_rate = (1 - like_rate) * drawn_as_negative(model, likes, seen)
    names = np.arange(DEMO.users, dtype=np.uint64)
    starts, negatives = draw_negatives(
        likes, model.weights, alias_table(model.weights), shards(likes[0]), (99, 1), names
    )
    some = rng.random(len(negatives)) < (~kept).sum() / len(negatives)
    rows = np.concatenate([users[~kept], np.repeat(np.arange(DEMO.users), np.diff(starts))[some]])
    columns = np.concatenate([items[~kept], negatives[some]])
    mean, spread = model.like(matrix, users=np.arange(DEMO.users))
    ratio = like_rate / (like_rate + negative_rate)
    outcome = np.arange(len(rows)) < (~kept).sum()
    return mean[rows, columns], spread[rows, columns], ratio[rows, columns], outcome


def test_like_is_calibrated_against_the_true_density_ratio(judged):
    like, _, ratio, _ = judged
    tenth = np.minimum((like * 10).astype(int), 9)
    gaps = [
        abs(np.mean(like[tenth == k] - ratio[tenth == k])) * np.mean(tenth == k) for k in np.unique(tenth)
    ]
    assert sum(gaps) <= 0.05


def test_like_gains_more_than_half_of_what_the_true_ratio_gains(judged):
    like, _, ratio, outcome = judged
    constant, ours, truth = (np.mean((p - outcome) ** 2) for p in (outcome.mean(), like, ratio))
    assert truth < ours < constant
    assert constant - ours >= 0.5 * (constant - truth)


def test_credible_intervals_cover_the_true_ratio(judged):
    like, spread, ratio, _ = judged
    covered = np.mean(np.abs(like - ratio) < 1.96 * spread)
    assert 0.85 < covered < 0.99
