"""The hidden graph: degrees as drawn, no repeats, equal totals, and random pairs."""

from itertools import pairwise, product

import numpy as np
import pytest

from oneclass.models.degrees.distributions import power_law, power_law_with_mean
from oneclass.models.generator import hidden_graph
from oneclass.models.generator.hidden_graph import (
    NotGraphical,
    draw_degrees,
    draw_graph,
    draw_simple_graph,
    is_graphical,
)
from oneclass.models.generator.likes import draw_like_factors, draw_likes, draw_ratings, like_probabilities


def degree_distributions(users, items, edges, exponents=(0.5, 0.77)):
    return power_law_with_mean(edges / users, exponents[0], items), power_law_with_mean(
        edges / items, exponents[1], users
    )


def check_graph(starts, users, user_degrees, item_degrees):
    """Simple, sorted, and of the degrees asked for."""
    assert (np.diff(starts) == item_degrees).all()
    assert (np.bincount(users, minlength=len(user_degrees)) == user_degrees).all()
    for first, last in pairwise(starts):
        assert (np.diff(users[first:last]) > 0).all()


@pytest.mark.parametrize(("users", "items", "edges", "exponent"), [
    (400, 300, 4_000, 0.7), (300, 400, 30_000, 0.0), (30, 20, 200, 0.3), (30, 20, 450, -2.0),
    (12, 9, 80, -2.0), (2, 2, 3, 0.0), (2, 500, 700, 0.0),
])  # fmt: skip
def test_graphs_are_simple_and_have_the_degrees_drawn(users, items, edges, exponent):
    for seed in range(5):
        both = degree_distributions(users, items, edges, (exponent, exponent))
        user_degrees, item_degrees = draw_degrees(*both, (users, items), seed)
        assert user_degrees.sum() == item_degrees.sum()
        assert min(user_degrees.min(), item_degrees.min()) >= 1
        check_graph(*draw_graph(*both, (users, items), seed), user_degrees, item_degrees)


def test_pairs_are_random():
    """In a sparse graph an edge stands between two classes of vertices in proportion to their half-edges."""
    user_degrees, item_degrees = np.repeat([1, 4, 10], [600, 150, 60]), np.repeat([2, 12, 30], [300, 50, 20])
    counts = np.zeros((3, 3))
    for seed in range(20):
        starts, items = draw_simple_graph(user_degrees, item_degrees, seed)
        owners = np.repeat(np.arange(810), np.diff(starts))
        rows, columns = np.digitize(owners, [600, 750]), np.digitize(items, [300, 350])
        counts += np.bincount(3 * rows + columns, minlength=9).reshape(3, 3)
    expected = 20 * np.outer([600, 600, 600], [600, 600, 600]) / 1800
    np.testing.assert_allclose(counts, expected, rtol=0.06)


def test_a_graph_that_leaves_no_choice_is_found():
    """Staircase degrees have one realisation, full of crowded corners."""
    steps = np.arange(1, 41)
    starts, items = draw_simple_graph(steps, steps, 0)
    found = np.zeros((40, 40), dtype=int)
    np.add.at(found, (np.repeat(np.arange(40), np.diff(starts)), items), 1)
    assert (found == (steps[:, None] + steps[None, :] > 40)).all()


def test_graphical_against_all_small_graphs():
    possible = set()
    for bits in product((0, 1), repeat=9):
        graph = np.reshape(bits, (3, 3))
        possible.add((tuple(graph.sum(1)), tuple(graph.sum(0))))
    for rows in product(range(4), repeat=3):
        for columns in product(range(4), repeat=3):
            assert is_graphical(np.array(rows), np.array(columns)) == ((rows, columns) in possible)


def test_totals_that_cannot_meet_are_refused(monkeypatch):
    monkeypatch.setattr(hidden_graph, "MAX_REDRAWS", 1_000)
    with pytest.raises(NotGraphical, match="7 users and 5 items"):
        draw_graph(power_law(0, 1, 1), power_law(0, 2, 2), (7, 5), 0)


@pytest.fixture(scope="module")
def graph():
    starts, users = draw_graph(power_law_with_mean(40, 0.3, 300), power_law_with_mean(80, 0.3, 600), (600, 300), 1)
    return starts, users, np.repeat(np.arange(300), np.diff(starts))


@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
def test_probabilities_are_the_coins_of_eq_2_and_add_up_to_the_likes(graph, share):
    starts, users, items = graph
    likes = share * len(users)
    traits, probability = like_probabilities(draw_like_factors((600, 300), 3, 2.0, 0.5, 1), starts, users, likes)
    logits = (traits.users[users] * traits.items[items]).sum(axis=1) + traits.item_bias[items]
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-logits)), atol=2e-6)
    assert probability.sum(dtype=np.float64) == pytest.approx(likes, rel=1e-4)


def test_coins_are_calibrated_and_independent(graph):
    starts, users, _ = graph
    probability = np.random.default_rng(0).random(len(users)).astype(np.float32)
    coins = draw_likes(starts, users, probability, 5)
    for low in np.arange(0, 1, 0.1):
        at = (probability >= low) & (probability < low + 0.1)
        error = np.sqrt((probability[at] * (1 - probability[at])).sum()) / at.sum()
        assert abs(coins[at].mean() - probability[at].mean()) < 4 * error
    surprise = coins - probability
    assert abs(np.corrcoef(surprise[1:], surprise[:-1])[0, 1]) < 4 / np.sqrt(len(users))


def test_stars_and_days(graph):
    starts, users, items = graph
    items = items.astype(np.int32)  # as the demo has them
    liked = draw_likes(starts, users, np.full(len(users), 0.5, dtype=np.float32), 2)
    stars, day = draw_ratings(users, items, liked, 2, 1_000)
    assert set(stars[liked]) == {4, 5}
    assert set(stars[~liked]) == {1, 2, 3}
    assert day.min() >= 0
    assert day.max() <= 999
    half = len(users) // 2
    again = draw_ratings(users[half:], items[half:], liked[half:], 2, 1_000)
    assert (again[0] == stars[half:]).all()
    assert (again[1] == day[half:]).all()
