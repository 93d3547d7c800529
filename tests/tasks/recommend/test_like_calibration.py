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
    LikeCalibration,
    confirm_like,
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
    order = np.argsort(like[0])
    for weight in (3, 1):  # of each like
        fitted = LikeCalibration.fit(like, y, np.where(y, weight, 1))
        mean, _ = fitted.apply(like)
        share = weight * p / (weight * p + 1 - p)
        for tenth in np.array_split(order, 10):
            assert mean[tenth].mean() == pytest.approx(share[tenth].mean(), abs=0.02)
    assert (np.diff(mean[order]) >= 0).all()
    gained = 1 - np.mean((p - mean) ** 2) / np.mean(like[1] ** 2)  # what the map leaves unexplained is the spread
    assert fitted.spread == pytest.approx(0.85 * np.sqrt(max(1 - gained, 0.25)), abs=0.03)


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
    assert confirm_like(listed, shares) == (True, True)
    assert confirm_like(((mean, deviation[::-1]), likes, rates), shares) == (True, False)
    assert confirm_like(((mean, 0.8 - deviation), likes, rates), shares) == (True, False)  # surest where p varies most
    assert confirm_like(listed, shares * 0.6) == (True, False)  # off alike everywhere
    uneven = np.where(rates > 2, likes, likes * 0.3)
    assert confirm_like(((mean, deviation), uneven, rates), shares) == (False, False)
    weights = np.concatenate([likes, rates])
    pairs = tuple(np.tile(values, 2)[weights > 0] for values in (mean, deviation))
    is_like = (np.arange(len(weights)) < len(likes))[weights > 0]
    kept, dropped, contradicted = (
        LikeCalibration.fit(pairs, is_like, weights[weights > 0], listed=((mean, given), found, rates))
        for given, found in ((deviation, likes), (deviation[::-1], likes), (deviation, uneven))
    )
    assert kept.spread == 0.9 and dropped.spread is contradicted.spread is None
    assert kept.holds and dropped.holds and not contradicted.holds
    assert abs(np.mean(kept.map_means(mean) - mean)) < 0.02 < np.mean(dropped.map_means(mean) - mean)


def test_no_mean_has_more_than_the_deviation_of_its_coin():
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
    assert calibrate_like(home, name, []) == UNVERIFIED  # without users of validation
    assert calibrations.sampled.pairs > 500 and (np.diff(calibrations.sampled.shares) >= 0).all()
