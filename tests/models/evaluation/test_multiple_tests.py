"""Corrections of p-values against their definitions, and the share of wrong marks among equally good lists."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from oneclass.models.evaluation.metrics import compare_paired
from oneclass.models.evaluation.multiple_tests import ALPHA, adjust_against_best, adjust_benjamini_hochberg, adjust_holm

# Of equal p-values, of 0 and of 1 there are some.
P_VALUES = st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.2, 1.0])), min_size=1, max_size=6)


def smallest_level_by_closed_testing(p_values: list[float], hypothesis: int, true_too: int = 0) -> float:
    """The level at which Bonferroni's test rejects every intersection of hypotheses that includes this one; `true_too`
    more hypotheses, without a test of their own, are in all of them.
    """
    others = [i for i in range(len(p_values)) if i != hypothesis]
    sets = [(hypothesis, *more) for size in range(len(p_values)) for more in combinations(others, size)]
    return min(1, max((len(one) + true_too) * min(p_values[i] for i in one) for one in sets))


@settings(max_examples=100, deadline=None)
@given(P_VALUES)
def test_holms_procedure_is_bonferronis_closed_test(p_values):
    expected = [smallest_level_by_closed_testing(p_values, i) for i in range(len(p_values))]
    assert adjust_holm(np.array(p_values)).tolist() == pytest.approx(expected)


@settings(max_examples=100, deadline=None)
@given(P_VALUES)
def test_against_the_best_each_list_may_be_the_best_one(p_values):
    """The best list is a hypothesis too, which no test rejects; of the others each has as many one-sided tests."""
    one_sided = [len(p_values) * p_value / 2 for p_value in p_values]
    expected = [smallest_level_by_closed_testing(one_sided, i, true_too=1) for i in range(len(p_values))]
    assert adjust_against_best(np.array(p_values)).tolist() == pytest.approx(expected)


@settings(max_examples=100, deadline=None)
@given(P_VALUES)
def test_the_false_discovery_rate_is_scipys(p_values):
    assert adjust_benjamini_hochberg(np.array(p_values)) == pytest.approx(stats.false_discovery_control(p_values))


def test_two_lists_need_no_correction_and_no_list_has_none():
    for adjust in (adjust_holm, adjust_against_best, adjust_benjamini_hochberg):
        assert adjust(np.array([0.03])).tolist() == pytest.approx([0.03])
        assert adjust(np.array([])).tolist() == []


def draw_equally_good_lists(lists: int, users: int, generator: np.random.Generator) -> np.ndarray:
    """Draw nDCG of one distribution, float64 (lists, users): correlated within and between two families of lists."""
    user, family, own = (generator.standard_normal((count, users)) for count in (1, 2, lists))
    latent = np.sqrt(0.8) * user + np.sqrt(0.05) * family[np.arange(lists) % 2] + np.sqrt(0.15) * own
    return np.clip(0.3 + 0.25 * latent, 0, 1)


@pytest.mark.parametrize("lists", [2, 14])
def test_of_equally_good_lists_one_is_called_worse_in_at_most_a_share_alpha_of_tables(lists):
    tables, corrected, uncorrected = 400, 0, 0
    generator = np.random.default_rng(1)
    for _ in range(tables):
        values = draw_equally_good_lists(lists, 100, generator)
        best = int(values.mean(axis=1).argmax())
        others = [compare_paired(values[best], other) for i, other in enumerate(values) if i != best]
        p_values = np.array([comparison.p_value for comparison in others])
        corrected += bool((adjust_against_best(p_values) < ALPHA).any())
        uncorrected += bool((p_values < ALPHA).any())
    assert corrected / tables <= ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / tables)
    assert uncorrected / tables > (0.5 if lists == 14 else 0)
