"""The published like is calibrated on the validation users of the demo, against both kinds of negatives."""

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
from oneclass.tasks.recommend.like_calibration import UNVERIFIED
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.stores.home import Home, Limits
from oneclass.tasks.train import load_or_fit

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
