"""Publications whose model reads the order or the times of a history: users of the logs, given histories, reasons."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.explain.explanation import explain_user
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish import manual
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend import load
from oneclass.tasks.stores import matrices, runs
from tests.conftest import home_in, log_into
from tests.tasks.conftest import publish_fit, split_likes, train_model

PROTOCOL, FIRST = "strong_generalization", datetime(2026, 3, 1)
MRF = MODELS["mrf_dense"].Settings(l2=2.0, recency_exponent=1.5)
REPEAT = MODELS["repeat"].Settings()


def run_night(home, events, models, likes, **options):
    """Run all stages on a log and publish the first of the models; return the digest of all edges."""
    log_into(home, events)
    described = {model: settings.model_dump(mode="json") for model, settings in models.items()}
    facts = {"models": described, "seed": 0, "since": None, "until": None, "binarize": likes.model_dump(mode="json")}
    with runs.record_run(home, "run", "backfill", facts):
        kept = {"held_out_share": 0.2, "order": "times" not in options}
        digests = split_likes(home, PROTOCOL, likes=likes, plan=options, **kept)
        made = {
            (model, protocol): train_model(home, digests[protocol], model, settings, protocol=protocol).digest
            for model, settings in models.items()
            for protocol in (PROTOCOL, ALL_EDGES)
        }
        evaluate(home, "run", PROTOCOL, [(digests[PROTOCOL], {model: made[model, PROTOCOL] for model in models})])
        first, all_edges = next(iter(models)), digests[ALL_EDGES]
        publish_fit(home, "run", PublishSettings(top_n=5), first, "score", made[first, ALL_EDGES], all_edges)
    return all_edges


@pytest.fixture(scope="module")
def ordered(tmp_path_factory):
    """(home, {user: items, oldest first}): a run that keeps the order of likes."""
    home, generator = home_in(tmp_path_factory.mktemp("recency")), np.random.default_rng(1)
    events = []
    for user in range(60):
        items = dict.fromkeys(user % 2 * 15 + int(item) for item in generator.integers(20, size=14))
        events += [(f"u{user}", f"i{item}", 1, FIRST + timedelta(hours=at)) for at, item in enumerate(items)]
    run_night(home, [events[at] for at in generator.permutation(len(events))], {"mrf_dense": MRF}, BinarizeSettings())
    return home, {user: [item for one, item, *_ in events if one == user] for user, *_ in events}


@pytest.fixture(scope="module")
def shop(ordered):
    return load(ordered[0].root, "small")


def by_hand(shop, history):
    """The scores, (1 + places from the end)^-1.5 times the weights, and what each item of the history adds."""
    columns = [shop.names.column_index(item) for item in history]
    added = (1.0 + np.arange(len(history))[::-1, None]) ** -1.5 * shop.fitted.weights[columns]
    return added.sum(axis=0), dict(zip(history, added, strict=True))


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
    with pytest.warns(match="not known"):  # the first mention of each item counts
        assert shop.recommend(["i1", "i9", "never seen", "i1", "i3", "i9"], n=4).equals(there)
    many = pl.DataFrame({"user_id": list("bababab"), "item_id": ["i1", "i3", "i9", "i9", "i1", "i1", "i3"]})
    found = shop.recommend_many(many, n=4)
    for user, expected in (("b", there), ("a", back)):
        assert found.filter(pl.col("user_id") == user).drop("user_id", "rank").equals(expected)


def test_an_explanation_weighs_as_the_recommendations_do_also_once_a_model_is_promoted_by_hand(ordered, shop):
    home, order = ordered
    for promoted in ("", "by hand"):
        if promoted:
            with runs.record_run(home, promoted, "promote", {}):
                manual.promote_model(home, promoted, "mrf_dense")
            assert home.published.resolve().name == promoted and load(home.root, "small").history("u7") == order["u7"]
        found = explain_user(home, "u7", top=3)
        asked, many = shop.recommend_for("u7", n=3), shop.recommend_many(pl.DataFrame({"user_id": ["u7"]}), n=3)
        assert [one["item_id"] for one in found.published.items] == asked["item_id"].to_list()
        assert many.drop("user_id", "rank").equals(asked) and shop.recommend(order["u7"], n=3).equals(asked)
        _, added = by_hand(shop, order["u7"])
        for item in found.published.items:
            for one, value in item["because"]:
                assert value == pytest.approx(added[one][shop.names.column_index(item["item_id"])], rel=1e-5)


@pytest.mark.slow
def test_users_of_the_log_are_scored_by_the_ages_of_their_events(tmp_path):
    """Some events are below the threshold; a model promoted by hand has the ages of likes alone too."""
    home, generator, events = home_in(tmp_path), np.random.default_rng(1), []
    for user in range(60):
        own = generator.choice(30, size=8, replace=False)
        for item in generator.choice(own, size=30):
            at = FIRST + timedelta(hours=int(generator.integers(90 * 24)))
            events.append((f"u{user}", f"i{item}", int(generator.integers(1, 6)), at))
    digest = run_night(home, events, {"repeat": REPEAT}, BinarizeSettings(threshold=2), times=True)
    stored = matrices.load_split(home, digest)
    expected = MODELS["repeat"](REPEAT).fit(stored.histories).scores(stored.histories)
    for publication in ("run", "promoted"):
        if publication == "promoted":
            with runs.record_run(home, publication, "promote", {}):
                manual.promote_model(home, publication, "repeat")
        shop = load(home.root, "small")
        found = np.stack([shop.scores_for(user_id) for user_id in shop.users["user_id"]])
        assert shop.publication == publication
        np.testing.assert_array_equal(found, expected)
        assert not np.array_equal(found, shop.fitted.scores(stored.train))
    popular = np.argsort(-shop.fitted.item_degrees, kind="stable")
    given = shop.recommend(["i1", "i2"], n=5, seen="exclude")["item_id"].to_list()
    assert given == [shop.names.ids[column] for column in popular if shop.names.ids[column] not in {"i1", "i2"}][:5]
