"""Ranks of targets by tiles of items, against those by the scores of all items."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.evaluation.beyond_accuracy import Exposure
from oneclass.models.registry import MODELS
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate.ranking import rank_part_targets, rank_targets_by_score
from oneclass.tasks.stores.matrices import Part
from tests.models.graph_filter.test_pruning import ITEMS, log_of


def part_of(log: csr_matrix, rows: np.ndarray | None) -> Part:
    """Every third like of a user is to be found; the last user has no history but finds something."""
    places = np.concatenate([np.arange(count) for count in np.diff(log.indptr)])
    parts = (places % 3 > 0, places % 3 == 0)
    kept = [csr_matrix((log.data * of, log.indices, log.indptr), log.shape, copy=True) for of in parts]
    for matrix in kept:
        matrix.eliminate_zeros()
    return Part(*kept, np.arange(log.shape[0]), rows)


@pytest.mark.parametrize("of_training", [False, True], ids=["unseen users", "training users"])
@pytest.mark.parametrize("name", ["wmf", "paired_symbols", "binary_matrix"])
def test_ranks_by_tiles_are_those_by_all_scores(name, of_training, monkeypatch):
    log = log_of(3)
    part = part_of(log, np.arange(log.shape[0], dtype=np.int32) if of_training else None)
    assert of_training or (np.diff(part.histories.indptr) == 0).any()
    model, empty = MODELS[name]().fit(log), Exposure(np.full(ITEMS, 3), log.shape[0])

    def rank():
        exposures = {score: empty.copy_empty() for score in model.score_names}
        ranks = rank_targets_by_score(model, part, exposures, on_progress=False)
        one = rank_part_targets(model, model.score_names[-1], part)
        return ranks, {score: exposure.shown for score, exposure in exposures.items()}, one

    expected = rank()
    monkeypatch.setattr("oneclass.models.tiled_scorer.MIN_TILED_ITEMS", 0)
    monkeypatch.setattr("oneclass.models.evaluation.ranking.TILE_COLUMNS", 32)
    monkeypatch.setattr("oneclass.tasks.evaluate.ranking.TILED_USERS", 30)
    monkeypatch.setattr(Model, "scores_of_training_users", lambda *_: 1 / 0)  # no user has the scores of all items
    np.testing.assert_equal(rank(), expected)


def test_the_user_and_the_score_that_cannot_be_ranked_are_named(monkeypatch):
    monkeypatch.setattr("oneclass.models.tiled_scorer.MIN_TILED_ITEMS", 0)
    log = log_of(3)
    model = MODELS["wmf"]().fit(log)
    model.user_factors[7] = np.nan
    with pytest.raises(OneclassError, match="wmf, score 'score', user_index 7: a score is NaN"):
        rank_targets_by_score(model, part_of(log, np.arange(log.shape[0], dtype=np.int32)), on_progress=False)
