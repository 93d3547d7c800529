"""Published lists that explore, and the probabilities beside them."""

import numpy as np
import polars as pl
import pytest

import oneclass
from oneclass.models.random_graph.model import RandomGraph
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.rules.settings import DeclaredRules, Rules
from oneclass.tasks.split.stage import store_all_edges
from tests.conftest import home_in, log_into
from tests.tasks.conftest import publish_fit, train_model

N = 10


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A home with a log of 300 users with two tastes, and what to publish of its fit of random_graph."""
    home, random = home_in(tmp_path_factory.mktemp("explored")), np.random.default_rng(0)
    log_into(home, [(f"u{u}", f"i{i}", 1) for u in range(300) for i in 40 * (u % 2) + random.permutation(50)[:12]])
    binarize(home, BinarizeSettings(), "run")
    digest = store_all_edges(home, order=False, timed=None)
    fit = train_model(home, digest, "random_graph", RandomGraph.Settings(iterations=15))
    return home, ("random_graph", "popularity_x_odds", fit.digest, digest)


@pytest.fixture(scope="module")
def published(fitted):
    """The folder of a publication with lists that explore, under rules."""
    home, what = fitted
    settings = PublishSettings(top_n=N, explore="thompson")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.tasks.publish.plan.EXPLORED_SHARE", 0.4)
        publish_fit(home, "run", settings, *what, declared=DeclaredRules(rules=Rules(banned=["i3", "i60"])), seed=5)
    return home.published


def test_published_lists_explore_and_their_value_can_be_estimated(published):
    explored = pl.read_parquet(published / "exploration.parquet")
    best = pl.read_parquet(published / "recommendations.parquet")
    assert explored["policy"].unique().to_list() == ["thompson"]
    assert not set(explored["item_id"]) & {"i3", "i60"}
    assert explored.group_by("list_id").len()["len"].to_list() == [N] * 300
    sure = explored.filter(pl.col("propensity") == 1).join(best, on=["user_id", "item_id", "rank"], how="semi")
    assert sure.height >= 6 * 300
    others = explored.join(best, on=["user_id", "item_id"], how="anti")
    assert 150 < others.height and (others["propensity"] < 0.5).all()
    likes = explored.with_columns(reaction=(pl.col("item_id").hash(1) % 2).cast(pl.Float64))
    target = explored.select("list_id", "user_id").unique().join(best, on="user_id").select("list_id", "item_id")
    found = oneclass.off_policy(likes, target)
    assert abs(found.supported_share - 1) < 0.1
    truth = (best["item_id"].hash(1) % 2).sum() / 300
    value, error = found.table.filter(pl.col("estimator") == "snips").select("value", "standard_error").row(0)
    assert abs(value - truth) < 4 * error + 1e-9
