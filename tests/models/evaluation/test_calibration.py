"""How `like` is judged, against the definitions written out, and against samples whose truth is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneclass.models.evaluation.calibration import bin_likes_by_degree, calibration_curve

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


def test_pairs_that_all_agree_have_no_standard_error():
    [one] = calibration_curve(np.array([0.91, 0.92, 1.0]), np.ones(3), np.array([1.0, 2, 3]))
    assert (one.low, one.high, one.observed, one.standard_error) == (0.9, 1, 1, None)


def test_the_standard_error_is_that_of_repeated_samples():
    random = np.random.default_rng(1)
    weights = np.repeat([1.0, 3.0], 200)
    runs = [calibration_curve(np.full(400, 0.35), random.random(400) < 0.3, weights)[0] for _ in range(800)]
    spread = np.std([one.observed for one in runs])
    assert np.mean([one.standard_error for one in runs]) == pytest.approx(spread, rel=0.1)
