"""A publication whose model reads times: its histories have the ages of their events, and so has a promoted model's."""

from datetime import datetime, timedelta

import numpy as np
import pytest

from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.binarize.weights import LikeSelection
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish import manual
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend import load
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import matrices, runs
from tests.conftest import home_in, log_into
from tests.tasks.conftest import publish_fit, train_model

PROTOCOL, SETTINGS = "strong_generalization", MODELS["repeat"].Settings()
LIKES = BinarizeSettings(threshold=2)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """(home, digest of all edges): a run of `repeat` on a log with times, some events below the threshold."""
    home, generator = home_in(tmp_path_factory.mktemp("times")), np.random.default_rng(1)
    first, events = datetime(2026, 3, 1), []
    for user in range(60):
        own = generator.choice(30, size=8, replace=False)
        for item in generator.choice(own, size=30):
            at = first + timedelta(hours=int(generator.integers(90 * 24)))
            events.append((f"u{user}", f"i{item}", int(generator.integers(1, 6)), at))
    log_into(home, events)
    described = {"models": {"repeat": SETTINGS.model_dump(mode="json")}, "seed": 0, "since": None, "until": None}
    with runs.record_run(home, "run", "backfill", {**described, "binarize": LIKES.model_dump(mode="json")}):
        binarize(home, LIKES, "run")
        plan = SplitPlan(SplitSettings(held_out_share=0.2), [PROTOCOL], 1, LikeSelection(LIKES), times=True)
        digests = split(home, "run", plan).digests
        made = {
            protocol: train_model(home, digests[protocol], "repeat", SETTINGS, protocol=protocol).digest
            for protocol in (PROTOCOL, ALL_EDGES)
        }
        evaluate(home, "run", PROTOCOL, [(digests[PROTOCOL], {"repeat": made[PROTOCOL]})])
        fit = "repeat", "score", made[ALL_EDGES], digests[ALL_EDGES]
        publish_fit(home, "run", PublishSettings(top_n=5), *fit)
    return home, digests[ALL_EDGES]


def check_scores(home, digest):
    """The published model scores users by the ages in the split, which is not what it would do without."""
    shop, stored = load(home.root, "small"), matrices.load_split(home, digest)
    assert stored.event_ages.days.max() > 60
    expected = MODELS["repeat"](SETTINGS).fit(stored.histories).scores(stored.histories)
    found = np.stack([shop.scores_for(user_id) for user_id in shop.users["user_id"]])
    np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(found, shop.fitted.scores(stored.train))
    return shop


def test_users_of_the_log_are_scored_by_the_ages_of_their_events(published):
    shop = check_scores(*published)
    given = shop.recommend(["i1", "i2"], n=5)["item_id"].to_list()
    popular = np.argsort(-shop.fitted.item_degrees, kind="stable")
    assert given == [shop.names.ids[column] for column in popular if shop.names.ids[column] not in {"i1", "i2"}][:5]


def test_a_model_promoted_by_hand_has_the_ages_of_likes_alone(published):
    home, digest = published
    with runs.record_run(home, "promoted", "promote", {}):
        manual.promote_model(home, "promoted", "repeat")
    assert check_scores(home, digest).publication == "promoted"
