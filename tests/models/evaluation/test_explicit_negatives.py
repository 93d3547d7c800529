"""The figures of what was considered, against their definitions written out over all pairs."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.explicit_negatives import (
    auc,
    calibration_error,
    evaluate_probabilities,
    smoothed_like_rates,
)


def pairs(seed=0, count=300):
    rng = np.random.default_rng(seed)
    probability = np.round(rng.random(count), 2)  # with ties
    return probability, rng.random(count) < probability


def test_the_auc_is_the_share_of_pairs_in_order_and_its_error_that_of_draws():
    probability, liked = pairs()
    likes, dislikes = probability[liked][:, None], probability[~liked]
    share = np.mean((likes > dislikes) + 0.5 * (likes == dislikes))
    assert auc(probability, liked).value == pytest.approx(share)
    assert auc(np.ones(4), np.array([True, False, True, False])).value == 0.5
    drawn = [auc(*pairs(seed)).value for seed in range(400)]
    assert auc(probability, liked).standard_error == pytest.approx(np.std(drawn), rel=0.15)


def test_log_loss_and_calibration_error_by_their_formulas():
    probability, liked = pairs(3)
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
