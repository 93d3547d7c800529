"""New and repeated targets apart, against plain sorting."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.metrics import average_over_users, compare_paired
from oneclass.models.evaluation.ranking import CannotRank
from oneclass.models.evaluation.repeated_items import NEW, REPEATED, rank_new_and_repeated


def to_csr(mask) -> csr_matrix:
    return csr_matrix(np.asarray(mask, dtype=np.float32))


def compute_ndcg(scores, candidates, wanted) -> float:
    """nDCG@100 of the wanted items among the candidates; NaN without a wanted one."""
    ranking = sorted(candidates, key=lambda item: (-scores[item], item))[:100]
    if not wanted:
        return math.nan
    gain = sum(1 / math.log2(place + 2) for place, item in enumerate(ranking) if item in wanted)
    return gain / sum(1 / math.log2(place + 2) for place in range(min(100, len(wanted))))


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 160), st.integers(1, 30), st.sampled_from([0, 0.1, 0.9]), st.floats(0, 1)
)
@settings(max_examples=80, deadline=None)
def test_each_kind_is_ranked_among_its_own_items(seed, items, levels, history_share, target_share):
    random = np.random.default_rng(seed)
    scores = random.integers(0, levels, (4, items)).astype(np.float32)
    history, targets = random.random(scores.shape) < history_share, random.random(scores.shape) < target_share
    found = rank_new_and_repeated(scores, to_csr(history), to_csr(targets))
    for user in range(len(scores)):
        own, wanted = (set(np.flatnonzero(mask[user]).tolist()) for mask in (history, targets))
        new = compute_ndcg(scores[user], set(range(items)) - own, wanted - own)
        assert found[NEW][user] == pytest.approx(new, abs=1e-12, nan_ok=True)
        assert found[REPEATED][user] == pytest.approx(
            compute_ndcg(scores[user], own, wanted & own), abs=1e-12, nan_ok=True
        )


def test_means_and_comparisons_are_over_the_users_with_such_a_target():
    values = np.array([np.nan, 0.25, 0.75, np.nan])
    means = average_over_users({NEW: values, REPEATED: np.full(4, np.nan), "mean_rank": np.ones(4)})
    assert (means[NEW].value, means[NEW].users) == (0.5, 2) and REPEATED not in means
    assert means[NEW].standard_error == pytest.approx(0.25 / math.sqrt(2))
    compared, plain = compare_paired(values, np.zeros(4)), compare_paired(values[1:3], np.zeros(2))
    assert compared == plain and compared.users == 2


def test_a_nan_score_is_refused():
    with pytest.raises(CannotRank, match="NaN"):
        rank_new_and_repeated(np.array([[np.nan, 1]], dtype=np.float32), to_csr([[0, 1]]), to_csr([[1, 0]]))
