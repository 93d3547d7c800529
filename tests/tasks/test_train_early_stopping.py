"""Train with a model that stops early: it watches the validation users, and goes on after an interruption."""

import numpy as np
import pytest

from oneclass.models.autoencoders.mult_dae import MultDAE
from oneclass.models.fit_options import FitOptions, ValidationUsers
from oneclass.tasks import train as stage
from oneclass.tasks.binarize import BinarizeSettings, binarize
from oneclass.tasks.split import SplitSettings, split
from oneclass.tasks.stores import matrices

pytest.importorskip("torch", reason="the extra neural is not installed")

SETTINGS = MultDAE.Settings(epochs=6, batch_users=10, learning_rate=0.02, hidden=6)


@pytest.fixture
def digest(home, log_events):
    """Two groups of users with tastes of their own, binarized and split, some of them for validation."""
    generator = np.random.default_rng(1)
    pairs = {(f"u{u}", f"i{u % 2 * 20 + generator.integers(20)}") for u in range(60) for _ in range(12)}
    log_events([(user, item, 1) for user, item in sorted(pairs)])
    binarize(home, BinarizeSettings(), "run")
    protocols = ["strong_generalization"]
    return split(home, SplitSettings(held_out_share=0.2), "run", protocols=protocols, seed=1).digests[protocols[0]]


def fit(home, digest):
    return stage.train(
        home,
        "run",
        protocol="strong_generalization",
        matrices_digest=digest,
        model="mult_dae",
        settings=SETTINGS,
        seed=2,
    )


@pytest.mark.slow
def test_the_validation_users_are_watched(home, digest):
    kept = MultDAE.load(home.models / "mult_dae" / fit(home, digest).digest)
    read = matrices.load_split(home, digest)
    part = read.parts["validation"]
    expected = MultDAE(SETTINGS, seed=2).fit(
        read.train, FitOptions(validation=ValidationUsers(part.histories, part.targets))
    )
    np.testing.assert_array_equal(kept.scores(part.histories), expected.scores(part.histories))
    assert kept.best_epoch == expected.best_epoch


def test_a_fit_that_was_interrupted_goes_on(home, digest, monkeypatch):
    seen = []

    def note(epoch):
        seen.append(epoch.number)
        if len(seen) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(stage, "_report_epochs", lambda tell: note)
    monkeypatch.setattr(MultDAE, "checkpoint_seconds", 0.0)
    with pytest.raises(KeyboardInterrupt):
        fit(home, digest)
    assert len(list((home.models / "mult_dae").glob("unfinished-*"))) == 1
    kept = fit(home, digest)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert [folder.name for folder in (home.models / "mult_dae").iterdir()] == [kept.digest]
