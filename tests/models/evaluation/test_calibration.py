"""How `like` is judged, against the definitions written out, and against samples whose truth is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.calibration import (
    auc,
    bin_likes_by_degree,
    calibration_curve,
    calibration_error,
    evaluate_probabilities,
    smoothed_like_rates,
)

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(1, 300))
@settings(max_examples=50, deadline=None)
def test_like_by_degree_follows_its_definition(seed, edges):
    random = np.random.default_rng(seed)
    like = np.append(random.random(edges), [0, 1, 0.5]).astype(np.float32)
    degrees = np.append((200 * random.random(edges) ** 2).astype(np.int64), [40, 41, 64])
    found = bin_likes_by_degree(like, degrees)
    bounds = [(d, d) for d in range(41)] + [(41, 63), (64, 127), (128, 255)]
    inside = {(low, high): [float(p) for p, d in zip(like, degrees) if low <= d <= high] for low, high in bounds}
    assert [(one.low, one.high) for one in found] == [ends for ends in bounds if inside[ends]]
    for one in found:
        likes = inside[one.low, one.high]
        assert one.edges == len(likes) == sum(one.histogram)
        assert one.error == pytest.approx(sum(p < 0.5 for p in likes) / len(likes))
        assert one.error == pytest.approx(sum(one.histogram[:10]) / len(likes))
        places = [min(int(np.float64(p) * 20), 19) for p in likes]
        assert one.histogram == tuple(places.count(place) for place in range(20))


@given(SEEDS, st.integers(1, 200))
@settings(max_examples=50, deadline=None)
def test_calibration_follows_its_definition(seed, pairs):
    random = np.random.default_rng(seed)
    like, truth = random.random(pairs), random.random(pairs)
    weights = random.random(pairs) + 0.1
    found = calibration_curve(like, truth, weights)
    for one in found:
        rows = [k for k in range(pairs) if one.low <= like[k] < one.high or like[k] == one.high == 1]
        total = sum(weights[k] for k in rows)
        observed = sum(weights[k] * truth[k] for k in rows) / total
        assert (one.pairs, one.observed) == (len(rows), pytest.approx(observed))
        assert one.mean_like == pytest.approx(sum(weights[k] * like[k] for k in rows) / total)
        error = sum((weights[k] * (truth[k] - observed)) ** 2 for k in rows) ** 0.5 / total
        assert one.standard_error == (pytest.approx(error) if len(rows) > 1 else None)
    assert sum(one.pairs for one in found) == pairs


def draw_pairs(seed=0, count=300):
    rng = np.random.default_rng(seed)
    probability = np.round(rng.random(count), 2)  # with ties
    return probability, rng.random(count) < probability


def test_the_auc_is_the_share_of_pairs_in_order_and_its_error_that_of_draws():
    probability, liked = draw_pairs()
    likes, dislikes = probability[liked][:, None], probability[~liked]
    share = np.mean((likes > dislikes) + 0.5 * (likes == dislikes))
    assert auc(probability, liked).value == pytest.approx(share)
    assert auc(np.ones(4), np.array([True, False, True, False])).value == 0.5
    drawn = [auc(*draw_pairs(seed)).value for seed in range(400)]
    assert auc(probability, liked).standard_error == pytest.approx(np.std(drawn), rel=0.15)


def test_log_loss_and_calibration_error_by_their_formulas():
    probability, liked = draw_pairs(3)
    probability = np.clip(probability, 0.005, 0.995)
    figures = evaluate_probabilities(probability, liked)
    losses = [-np.log(p if one else 1 - p) for p, one in zip(probability, liked)]
    assert figures["considered_log_loss"].value == pytest.approx(np.mean(losses))
    error = 0.0
    for low in np.arange(10) / 10:
        inside = (probability >= low - 1e-12) & (probability < low + 0.1 - 1e-12)
        error += abs(np.sum(probability[inside]) - np.sum(liked[inside])) / len(liked)
    assert figures["considered_calibration_error"].value == pytest.approx(error)
    assert calibration_error(probability, probability) == 0
    assert np.isfinite(
        evaluate_probabilities(np.array([0.0, 1.0]), np.array([True, False]))["considered_log_loss"].value
    )


def test_shares_of_items_are_shrunk_towards_that_of_all():
    likes = csr_matrix(np.array([[1, 0, 0], [1, 1, 0], [1, 0, 0]]))
    dislikes = csr_matrix(np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0]]))
    share = 4 / 5
    assert smoothed_like_rates(likes, dislikes) == pytest.approx([(3 + 5 * share) / 8, (1 + 5 * share) / 7, share])
