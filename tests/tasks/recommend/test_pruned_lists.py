"""Lists of a model that does not score all items, with and without rules, against those by all scores."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.graph_filter.model import GraphFilter
from oneclass.models.numerics.constrained_top_k import Constraints
from oneclass.tasks.recommend.ranking import rank_items
from oneclass.tasks.rules.selection import Selection
from tests.models.graph_filter.test_pruning import ITEMS, log_of

N = 8


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.models.graph_filter.model.CACHE_ENTRIES", 400)
        patch.setattr("oneclass.models.graph_filter.model.MAX_FILTER_ENTRIES", 0)
        GraphFilter().fit(log_of(3)).save(folder)
        yield GraphFilter.load(folder)


def draw_selection(seed: int, **chosen) -> Selection:
    """One in ten items is not eligible; a third are of category 0 and a third of category 1, and two of each fit."""
    draw = np.random.default_rng(seed)
    categories = draw.integers(0, 3, ITEMS)
    indptr = np.concatenate([[0], np.cumsum(categories < 2)])
    fields = {
        "eligible": draw.random((1, ITEMS)) < 0.9,
        "boosts": None,
        "pinned": np.empty(0, dtype=np.int32),
        "category_indptr": indptr,
        "category_indices": categories[categories < 2].astype(np.int32),
        "limits": np.array([2, 2], dtype=np.int32) if seed % 2 else np.array([N, N], dtype=np.int32),
    }
    excluded = csr_matrix(draw.random((1, ITEMS)) < 0.05) if seed % 3 else None
    constraints = Constraints(**{**fields, **{name: of for name, of in chosen.items() if name in fields}})
    return Selection(N, constraints, np.zeros(1, dtype=np.int32), excluded, exclude_seen=seed % 4 < 2)


SELECTIONS = [None, *map(draw_selection, range(8)), draw_selection(0, pinned=np.array([250], dtype=np.int32))]
SELECTIONS += [
    draw_selection(0, eligible=np.ones((1, ITEMS), dtype=bool)),
    draw_selection(2, boosts=np.eye(1, ITEMS, 290)),
]


@pytest.mark.parametrize("selection", SELECTIONS, ids=range(len(SELECTIONS)))
def test_lists_are_those_by_all_scores(model, selection, monkeypatch):
    log, popular = log_of(3), np.arange(ITEMS, dtype=np.float32)
    scored: list[int] = []
    scores = GraphFilter._scores
    monkeypatch.setattr(GraphFilter, "_scores", lambda *args: scored.append(1) or scores(*args))
    for user in range(0, 80, 5):  # user 5 has no history
        given = {"selection": selection, "popular": popular, "without": np.array([2], dtype=np.int32)}
        found = rank_items(model, "score", log[[user]], N, **given)
        before = len(scored)
        with monkeypatch.context() as patch:
            patch.setattr(GraphFilter, "_find_best_items", lambda *_: None)
            expected = rank_items(model, "score", log[[user]], N, **given)
        assert len(scored) == before + 1
        np.testing.assert_array_equal(found.items, expected.items)
        np.testing.assert_array_equal(found.scores, expected.scores)
    if selection is None:
        assert len(scored) == 16 + 1
    elif selection is SELECTIONS[-2]:
        assert len(scored) < 2 * 16
