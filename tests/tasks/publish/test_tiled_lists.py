"""Lists of all users that are found by tiles, against those made of all scores."""

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from oneclass.models.numerics.constrained_top_k import Constraints
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.cluster import LOCAL
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish import recommend_all
from oneclass.tasks.publish.recommend_all import RecommendationSpec, compute_recommendations
from oneclass.tasks.rules.selection import Selection
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import split
from oneclass.tasks.stores import matrices
from oneclass.tasks.train import train
from tests.conftest import two_tastes


def make_selections(users: int, items: int, exclude_seen: bool) -> dict[str | None, Selection]:
    """Two placements: one with boosts, a pin and limits for two sets of users, one with eligible items alone."""
    draw = np.random.default_rng(5)
    sets, none = draw.integers(0, 2, users).astype(np.int32), np.empty(0, dtype=np.int32)
    indptr, categories = np.arange(items + 1), draw.integers(0, 3, items).astype(np.int32)
    boosts = (draw.random((2, items)) < 0.3) * np.float32(0.2)
    pinned, limits = np.array([3], dtype=np.int32), np.array([2, 3, 3], dtype=np.int32)
    ruled = Constraints(draw.random((2, items)) < 0.9, boosts, pinned, indptr, categories, limits)
    eligible = Constraints(draw.random((1, items)) < 0.5, None, none, np.zeros_like(indptr), none, none)
    return {
        None: Selection(5, ruled, sets, exclude_seen=exclude_seen),
        "basket": Selection(3, eligible, np.zeros(users, dtype=np.int32), exclude_seen=exclude_seen),
    }


@pytest.mark.parametrize("by_rules", [False, True])
@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize(("name", "score"), [("wmf", "score"), ("paired_symbols", "popularity_x_odds")])
def test_lists_by_tiles_are_those_by_all_scores(home, name, score, exclude_seen, by_rules, monkeypatch):
    two_tastes(home)
    binarize(home, BinarizeSettings(), "run")
    digest = split(home, SplitSettings(), "run", protocols=["leave_one_out"], seed=1).digests[ALL_EDGES]
    chosen = {"protocol": ALL_EDGES, "matrices_digest": digest, "model": name, "settings": MODELS[name].Settings()}
    spec = RecommendationSpec(name, score, train(home, "run", **chosen, seed=0).digest, digest, 5, exclude_seen)
    shape = matrices.load_split(home, digest).train.shape
    selections = make_selections(*shape, exclude_seen) if by_rules else None
    expected = pl.concat(compute_recommendations(home, spec, LOCAL, selections))
    monkeypatch.setattr("oneclass.models.tiled_scorer.MIN_TILED_ITEMS", 0)
    monkeypatch.setattr("oneclass.models.numerics.tiled_ranking.TILE_ITEMS", 4)
    monkeypatch.setattr(recommend_all, "USERS_PER_BLOCK", 32)
    monkeypatch.setattr(recommend_all, "_recommend_rows", lambda *_: 1 / 0)  # no block is scored whole
    found = pl.concat(compute_recommendations(home, spec, LOCAL, selections))
    assert_frame_equal(found, expected, rel_tol=1e-9, check_row_order=selections is None)
