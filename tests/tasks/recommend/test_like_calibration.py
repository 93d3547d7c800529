"""Calibration of like: the mean meets the observed shares, the spread what is left; on drawn pairs and on the demo."""

import numpy as np
import pytest

from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import load_dataset
from oneclass.tasks.demo import DemoSettings, make_demo
from oneclass.tasks.evaluate.calibration import score_explicit_pairs
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.publish.calibrate import calibrate_like
from oneclass.tasks.recommend.like_calibration import (
    IDENTITY,
    MIN_PAIRS,
    UNVERIFIED,
    Calibrations,
    LikeCalibration,
    confirm_deviation,
)
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.stores.home import Home, Limits
from oneclass.tasks.train import load_or_fit


@pytest.fixture(scope="module")
def pairs():
    """(like, p, y): the true probabilities p lie about a curve of `like`, whose claimed spread is their distance."""
    random = np.random.default_rng(3)
    hidden = random.uniform(0.02, 0.98, 60_000)
    p = np.clip(hidden + random.normal(0, 0.1, len(hidden)) * np.sqrt(hidden * (1 - hidden)), 0.001, 0.999)
    mean = 0.5 + (hidden - 0.5) * 0.5  # too timid
    deviation = np.full(len(hidden), np.sqrt(np.mean((p - mean) ** 2)))
    return (mean.astype(np.float32), deviation.astype(np.float32)), p, random.random(len(hidden)) < p


def test_the_mean_meets_the_shares_and_stays_in_order(pairs):
    like, p, y = pairs
    fitted = LikeCalibration.fit(like, y, np.ones(len(y)))
    mean, _ = fitted.apply(like)
    for low in np.arange(0, 1, 0.1):
        inside = (mean >= low) & (mean < low + 0.1)
        assert mean[inside].mean() == pytest.approx(p[inside].mean(), abs=0.02)
    order = np.argsort(like[0])
    assert (np.diff(mean[order]) >= 0).all()
    gained = 1 - np.mean((p - mean) ** 2) / np.mean(like[1] ** 2)  # what the map leaves unexplained is the spread
    assert fitted.spread == pytest.approx(0.85 * np.sqrt(max(1 - gained, 0.25)), abs=0.03)
    assert fitted.pairs == len(y) and (np.diff(fitted.knots) > 0).all() and (np.diff(fitted.shares) >= 0).all()


def test_weights_count_pairs(pairs):
    like, _, y = pairs
    some = slice(0, 3000)
    twice = np.where(y[some], 2, 1)
    repeated = [np.repeat(values[some], twice) for values in (*like, y)]
    weighed = LikeCalibration.fit((like[0][some], like[1][some]), y[some], twice)
    counted = LikeCalibration.fit((repeated[0], repeated[1]), repeated[2], np.ones(twice.sum()))
    grid = np.linspace(0.3, 0.7, 9)
    np.testing.assert_allclose(weighed.map_means(grid), counted.map_means(grid), atol=0.02)


def test_too_few_pairs_give_none(pairs):
    like, _, y = pairs
    few = slice(0, MIN_PAIRS - 1)
    assert LikeCalibration.fit((like[0][few], like[1][few]), y[few], np.ones(MIN_PAIRS - 1)) is None
    assert LikeCalibration.fit(like, np.ones(len(y)), np.ones(len(y))) is None


def test_a_deviation_is_published_if_likes_confirm_it_and_the_mean_is_that_of_single_pairs():
    """The true p lies about a logit of known mean, the more widely the larger its standard deviation."""
    random, count = np.random.default_rng(5), 60_000
    centre, width = random.uniform(-1.5, 0.5, count), random.uniform(0.2, 1.2, count)
    draws = 1 / (1 + np.exp(-(centre + width * random.normal(size=(200, count)))))
    rates = random.uniform(1, 4, count)
    likes = random.poisson(rates * (draws / (1 - draws)).mean(axis=0))
    mean, deviation = draws.mean(axis=0), draws.std(axis=0)
    listed = (mean, deviation), likes, rates
    shares = mean + deviation**2 / (1 - mean)  # of pairs that are met by 1 / (1 - p)
    assert confirm_deviation(listed, shares)
    assert not confirm_deviation(((mean, deviation[::-1]), likes, rates), shares)
    assert not confirm_deviation(((mean, 0.8 - deviation), likes, rates), shares)  # surest where p varies most
    assert not confirm_deviation(listed, shares * 0.6)  # the shares do not hold
    weights = np.concatenate([likes, rates])
    pairs = tuple(np.tile(values, 2)[weights > 0] for values in (mean, deviation))
    is_like = (np.arange(len(weights)) < len(likes))[weights > 0]
    kept, dropped = (
        LikeCalibration.fit(pairs, is_like, weights[weights > 0], listed=((mean, given), likes, rates))
        for given in (deviation, deviation[::-1])
    )
    assert kept.spread == 0.9 and dropped.spread is None
    assert abs(np.mean(kept.map_means(mean) - mean)) < 0.02 < np.mean(dropped.map_means(mean) - mean)


def test_calibrations_of_earlier_publications_load_with_their_factor():
    stored = {"sampled": {"knots": [0.0, 1.0], "shares": [0.0, 1.0], "spread": 0.5, "pairs": 900}, "explicit": None}
    mean, deviation = np.array([0.5], np.float32), np.array([0.2], np.float32)
    assert Calibrations.load(stored).sampled.apply((mean, deviation))[1] == pytest.approx(0.1)
    assert Calibrations.load(UNVERIFIED.dump()) == UNVERIFIED
    assert UNVERIFIED.sampled.apply((mean, deviation))[1] == pytest.approx(0.2)  # for lists that explore


def test_no_mean_has_more_than_the_deviation_of_its_coin():
    mean = np.random.default_rng(3).random(100_000, dtype=np.float32)
    mean, deviation = (values.astype(np.float64) for values in IDENTITY.apply((mean, np.ones_like(mean))))
    inside = deviation > 1e-6
    assert inside.mean() > 0.99
    assert (deviation**2 < mean * (1 - mean))[inside].all()
    mean, deviation = np.array([0.01, 0.5, np.nan, 1.0], np.float32), np.array([0.3, 0.2, np.nan, 0.0], np.float32)
    np.testing.assert_allclose(IDENTITY.apply((mean, deviation))[1], [np.sqrt(0.0099), 0.2, np.nan, 1e-6], rtol=1e-5)


FITTED = {"random_graph": {"factors": 4, "iterations": 12}, "paired_symbols": {"factors": 4, "iterations": 12}}


@pytest.fixture(scope="module")
def demo_fits(tmp_path_factory):
    """(home, digest of the split, digests of the fits by model)."""
    home = Home(tmp_path_factory.mktemp("calibrate"), "demo", Limits(threads=1, memory=1 << 30))
    logs = make_demo(home, DemoSettings(users=400, items=150, likes=9_000), 3)
    ingest(home, load_dataset("demo", home.root), logs, "run")
    binarize(home, BinarizeSettings(threshold=4, explicit_negatives=True), "run")
    protocol = "strong_generalization"
    digest = split(home, "run", SplitPlan(SplitSettings(), [protocol], seed=0)).digests[protocol]
    digests = {
        name: load_or_fit(home, digest, name, MODELS[name].Settings(**given), 0).digest
        for name, given in FITTED.items()
    }
    return home, digest, digests


@pytest.mark.parametrize("name", FITTED)
def test_the_means_meet_the_shares_of_likes(demo_fits, name):
    home, digest, digests = demo_fits
    pair = [(digest, digests[name])]
    calibrations = calibrate_like(home, name, pair, pair)
    model, part = fits.load_fit(home, name, digests[name]), matrices.load_split(home, digest).parts["validation"]
    pairs = score_explicit_pairs(model, part)
    raw = abs(pairs.like.mean() - pairs.liked.mean())
    calibrated = abs(calibrations.explicit.map_means(pairs.like).mean() - pairs.liked.mean())
    assert calibrated < 0.01 < raw and calibrations.explicit.pairs == len(pairs.like)
    targets = model.like(part.histories, items=np.unique(part.targets.indices))[0]
    shares = calibrations.sampled.map_means(targets)
    assert calibrations.sampled.pairs > 500 and 0.1 < shares.mean() < 0.6
    assert np.ptp(shares) > np.ptp(targets) * 0.5 and (np.diff(calibrations.sampled.shares) >= 0).all()


def test_without_validation_users_the_mean_stays_and_no_deviation_is_published(demo_fits):
    home, _, _ = demo_fits
    assert calibrate_like(home, "random_graph", []) == UNVERIFIED
