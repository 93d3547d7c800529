"""Traits, coins and ratings of the generative story, against the formulas written out."""

import numpy as np
import pytest

from oneclass.models.degrees.distributions import power_law_with_mean
from oneclass.models.generator.hidden_graph import draw_graph
from oneclass.models.generator.likes import draw_like_factors, draw_likes, draw_ratings, like_probabilities


@pytest.fixture(scope="module")
def graph():
    starts, users = draw_graph(power_law_with_mean(40, 0.3, 300), power_law_with_mean(80, 0.3, 600), (600, 300), 1)
    return starts, users, np.repeat(np.arange(300), np.diff(starts))


def test_traits_have_the_standard_deviations_asked_for():
    traits = draw_like_factors((2_000, 1_500), 4, 2.5, 0.5, 3)
    assert (traits.users @ traits.items.T).std() == pytest.approx(2.5, rel=0.05)
    assert traits.users.std() == pytest.approx(traits.items.std(), rel=0.05)
    assert traits.item_bias.std() == pytest.approx(0.5, rel=0.06)


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
