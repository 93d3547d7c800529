"""Lists that explore: what stays, what is drawn, and the propensities, against many nights."""

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.numerics.constrained_top_k import Constraints
from oneclass.tasks.recommend.exploration import OPTIMISM, Exploration, find_candidates, order_picks, pick_items
from oneclass.tasks.rules.selection import Selection

USERS, CANDIDATES, N = 4, 50, 10
NOBODY = np.empty(0, dtype=np.int32)
EXPLORES = Exploration(share=0.4, night=0, seed=0)


def draw_orders(seed):
    random = np.random.default_rng(seed)
    ids = np.stack([random.permutation(200)[:CANDIDATES] for _ in range(USERS)]).astype(np.int32)
    ids[3, 30:] = -1
    means = random.beta(2, 4, ids.shape).astype(np.float32)
    return ids, (means, (0.02 + 0.2 * random.random(ids.shape)).astype(np.float32))


def test_pinned_items_stay_and_short_lists_are_padded():
    ids, like = draw_orders(3)
    pinned = ids[0, :8]
    picks, propensities = pick_items(EXPLORES, ids, like, np.arange(USERS), N, pinned)
    assert (picks[0, :8] == np.arange(8)).all() and (propensities[0, :8] == 1).all()
    assert (propensities[0, 8:] < 1).all()
    picks, propensities = pick_items(EXPLORES, ids[:, :5], tuple(part[:, :5] for part in like), np.arange(4), N, NOBODY)
    assert (picks[:, :5] == np.arange(5)).all() and (propensities[:, :5] == 1).all()


def test_a_list_shows_pinned_items_first_then_the_highest_scores_and_padding_last():
    picks, candidates = np.array([[0, 1, 3, -1, -1]]), np.array([[7, 4, 9, 5]], dtype=np.int32)
    scores = np.array([[-3.0, -5.0, -1.0, -2.0]])
    order = order_picks(picks, candidates, scores, np.array([7], dtype=np.int32))
    assert order.tolist() == [[0, 2, 1, 3, 4]]
    assert order_picks(picks, candidates, scores, NOBODY).tolist() == [[2, 0, 1, 3, 4]]


def test_candidates_are_the_best_then_in_turn_the_next_and_the_promising_within_limits():
    random = np.random.default_rng(5)
    users, items, limit = 6, 90, 3
    scores = random.normal(size=(users, items)).astype(np.float32)
    like = random.random(scores.shape).astype(np.float32), 0.3 * random.random(scores.shape).astype(np.float32)
    liked, category = random.random(scores.shape) < 0.1, random.integers(0, 12, items).astype(np.int32)
    limits = np.full(12, limit, dtype=np.int32)
    constraints = Constraints(np.ones((1, items), dtype=bool), None, NOBODY, np.arange(items + 1), category, limits)
    selection = Selection(6, constraints, np.zeros(users, dtype=np.int32))
    found = find_candidates(scores, like, csr_matrix(liked, dtype=np.float32), selection)
    for user in range(users):
        best, promising = (
            follow_order(np.argsort(-values, kind="stable"), liked[user], category, limit, 30)
            for values in (scores[user], like[0][user] + OPTIMISM * like[1][user])
        )
        turns = {item: place + 0.5 for place, item in enumerate(promising)}
        turns |= {item: min(place, turns.get(item, np.inf)) for place, item in enumerate(best)}
        in_turn = best[:6] + sorted({*turns} - {*best[:6]}, key=turns.get)
        assert found[user][found[user] >= 0].tolist() == follow_order(in_turn, liked[user], category, limit, 30)


def follow_order(order, liked, category, limit, length):
    """Follow an order of items past those that are liked or whose category is full."""
    chosen = []
    for item in order:
        if not liked[item] and sum(category[one] == category[item] for one in chosen) < limit and len(chosen) < length:
            chosen.append(int(item))
    return chosen
