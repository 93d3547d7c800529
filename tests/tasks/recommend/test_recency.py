"""A publication whose model weighs a history by its order: users of the logs, histories that are given, reasons."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.explain.explanation import explain_user
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish import manual
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend import load
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import runs
from tests.conftest import home_in, log_into
from tests.tasks.conftest import publish_fit, train_model

PROTOCOL = "strong_generalization"
SETTINGS = {
    "mrf_dense": MODELS["mrf_dense"].Settings(l2=2.0, recency_exponent=1.5),
    "slim": MODELS["slim"].Settings(recency_exponent=1.5),
}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """(home, {user: items, oldest first}): a run that keeps the order of likes, its model published."""
    home, generator = home_in(tmp_path_factory.mktemp("recency")), np.random.default_rng(1)
    day, events = datetime(2026, 3, 1), []
    for user in range(60):
        items = dict.fromkeys(user % 2 * 15 + int(item) for item in generator.integers(20, size=14))
        events += [(f"u{user}", f"i{item}", 1, day + timedelta(hours=at)) for at, item in enumerate(items)]
    log_into(home, [events[at] for at in generator.permutation(len(events))])
    described = {"models": {model: of.model_dump(mode="json") for model, of in SETTINGS.items()}, "seed": 0}
    with runs.record_run(home, "run", "backfill", described):
        binarize(home, BinarizeSettings(), "run")
        settings = SplitSettings(held_out_share=0.2, order=True)
        digests = split(home, "run", SplitPlan(settings, [PROTOCOL], seed=1)).digests
        made = {
            (model, protocol): train_model(home, digests[protocol], model, SETTINGS[model], protocol=protocol).digest
            for model, protocol in (("mrf_dense", PROTOCOL), ("slim", PROTOCOL), ("mrf_dense", ALL_EDGES))
        }
        evaluate(home, "run", PROTOCOL, [(digests[PROTOCOL], {model: made[model, PROTOCOL] for model in SETTINGS})])
        fit = "mrf_dense", "score", made["mrf_dense", ALL_EDGES], digests[ALL_EDGES]
        publish_fit(home, "run", PublishSettings(top_n=5), *fit)
    return home, {user: [item for one, item, *_ in events if one == user] for user, *_ in events}


@pytest.fixture(scope="module")
def shop(published):
    return load(published[0].root, "small")


def by_hand(shop, history):
    """{item: score}, (1 + places from the end)^-1.5 times the weights, and what each item of the history adds to
    them.
    """
    columns = [shop.names.column_index(item) for item in history]
    added = (1.0 + np.arange(len(history))[::-1, None]) ** -1.5 * shop.fitted.weights[columns]
    return added.sum(axis=0), dict(zip(history, added, strict=True))


@pytest.mark.slow
def test_lists_are_published_by_the_order_of_the_log(published, shop):
    home, order = published
    lists = pl.read_parquet(home.published / "recommendations.parquet").sort("user_id", "rank")
    for user in order:
        assert shop.history(user) == order[user]
        scores, _ = by_hand(shop, order[user])
        own = lists.filter(pl.col("user_id") == user)
        np.testing.assert_allclose(
            own["score"], [scores[shop.names.column_index(one)] for one in own["item_id"]], rtol=1e-5
        )
        found = shop.recommend_for(user, n=5)
        assert found.select("item_id", "score").equals(own.select("item_id", "score"))
        assert shop.recommend(order[user], n=5).equals(found)


@pytest.mark.slow
def test_a_history_that_is_given_is_in_its_order(shop):
    there = shop.recommend(["i1", "i9", "i3"], n=4)
    scores, added = by_hand(shop, ["i1", "i9", "i3"])
    for item, score, because in there.select("item_id", "score", "because").iter_rows():
        column = shop.names.column_index(item)
        assert score == pytest.approx(scores[column], rel=1e-5)
        assert because == [one for one in sorted(added, key=lambda one: -added[one][column]) if added[one][column] > 0]
    back = shop.recommend(["i3", "i9", "i1"], n=4)
    assert not back["score"].equals(there["score"])
    assert shop.recommend(["i1", "i9", "i1", "i3", "i9"], n=4).equals(there)  # the first mention of each counts
    with pytest.warns(match="not known"):
        assert shop.recommend(["i1", "i9", "never seen", "i3", "nor this"], n=4).equals(there)
    many = pl.DataFrame({"user_id": list("bababab"), "item_id": ["i1", "i3", "i9", "i9", "i1", "i1", "i3"]})
    found = shop.recommend_many(many, n=4)
    for user, expected in (("b", there), ("a", back)):
        assert found.filter(pl.col("user_id") == user).drop("user_id", "rank").equals(expected)
    assert len(shop.recommend([], n=3)) == 3 and len(shop.similar_items("i1", n=3)) == 3


def test_an_explanation_weighs_as_the_recommendations_do(published, shop):
    home, order = published
    for user in ("u7", "u8"):
        found = explain_user(home, user, top=3)
        assert [one.item_id for one in found.published.items] == shop.recommend_for(user, n=3)["item_id"].to_list()
        _, added = by_hand(shop, order[user])
        for item in found.published.items:
            for one, value in item.because:
                assert value == pytest.approx(added[one][shop.names.column_index(item.item_id)], rel=1e-5)


def test_a_model_promoted_by_hand_keeps_the_order(published):
    home, order = published
    with runs.record_run(home, "by hand", "promote", {}):
        manual.promote_model(home, "by hand", "mrf_dense")
    assert home.published.resolve().name == "by hand"
    assert load(home.root, "small").history("u7") == order["u7"]
