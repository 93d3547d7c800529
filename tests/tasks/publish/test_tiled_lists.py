"""Lists of all users that are found by tiles, against those made of all scores."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from oneclass.models.base import Model
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.cluster import LOCAL
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish import recommend_all
from oneclass.tasks.publish.recommend_all import RecommendationSpec, compute_recommendations
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import split
from oneclass.tasks.train import train
from tests.conftest import two_tastes


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize(("name", "score"), [("wmf", "score"), ("paired_symbols", "popularity_x_odds")])
def test_lists_by_tiles_are_those_by_all_scores(home, name, score, exclude_seen, monkeypatch):
    two_tastes(home)
    binarize(home, BinarizeSettings(), "run")
    digest = split(home, SplitSettings(), "run", protocols=["leave_one_out"], seed=1).digests[ALL_EDGES]
    chosen = {"protocol": ALL_EDGES, "matrices_digest": digest, "model": name, "settings": MODELS[name].Settings()}
    spec = RecommendationSpec(name, score, train(home, "run", **chosen, seed=0).digest, digest, 5, exclude_seen)
    expected = pl.concat(compute_recommendations(home, spec, LOCAL))
    monkeypatch.setattr("oneclass.models.tiled_scorer.MIN_TILED_ITEMS", 0)
    monkeypatch.setattr("oneclass.models.numerics.tiled_ranking.TILE_ITEMS", 4)
    monkeypatch.setattr(recommend_all, "USERS_PER_BLOCK", 32)
    monkeypatch.setattr(Model, "select_best", lambda *_, **__: 1 / 0)  # no list is made of all scores
    found = pl.concat(compute_recommendations(home, spec, LOCAL))
    assert_frame_equal(found, expected, rel_tol=1e-9)
    assert found["predictability"].n_unique() > 1
