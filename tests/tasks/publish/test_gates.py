"""The gates of a promotion at their bounds: each constant of the policy decides at its value, and not beside it."""

import pytest

from oneclass.models.evaluation.metrics import Mean
from oneclass.tasks.publish import gates
from oneclass.tasks.publish.settings import PromotionLimits

LIMITS = PromotionLimits()


@pytest.mark.parametrize(
    ("value", "refused"), [(0.33, True), (0.479, True), (0.481, False), (0.5, False), (0.9, False)]
)
def test_a_mean_rank_below_that_of_guesses_is_not_promoted(value, refused):
    """By more than two standard errors, here of .01."""
    objection = gates.check_better_than_random("slim/score", Mean(value, 0.01, 60))
    assert (objection is not None) == refused
    assert not refused or ("slim/score" in objection and f"{value:.3f}" in objection and "0.5" in objection)


@pytest.mark.parametrize(("sd", "refused"), [(0.0399, True), (0.0401, False), (None, True)])
def test_a_large_fall_within_five_joint_standard_errors_is_no_fall(sd, refused):
    """From .4 to .1; the joint error is hypot(1, sqrt(5) / 2) sd = 1.5 sd; five times that are .3 at sd = .04."""
    objection = gates.check_drop("slim/score", Mean(0.1, sd, 60), Mean(0.4, sd and sd * 5**0.5 / 2, 60), LIMITS)
    assert (objection is not None) == refused
    assert not refused or ("0.1000" in objection and "0.4000" in objection)


def test_a_surely_lower_value_is_refused_from_the_stated_share_on():
    """However small the errors, a fall of up to `max_drop` of the earlier value may be the data's."""
    bound = (1 - LIMITS.max_drop) * 0.4
    assert gates.check_drop("slim/score", Mean(bound + 1e-6, 1e-9, 60), Mean(0.4, 1e-9, 60), LIMITS) is None
    assert gates.check_drop("slim/score", Mean(bound - 1e-6, 1e-9, 60), Mean(0.4, 1e-9, 60), LIMITS)


def test_sizes_and_coverage_are_refused_below_their_ratio_only():
    size = LIMITS.min_size_ratio * 1000
    assert gates.check_size("edges", int(size), 1000, LIMITS) is None
    assert "publish.min_size_ratio" in gates.check_size("edges", int(size) - 1, 1000, LIMITS)
    lists = {"entries": 9, "not_finite": 0, "constant": False, "standing_items": 1000}
    items = int(LIMITS.min_coverage_ratio * 1000)
    assert gates.check_lists("slim/score", {**lists, "items": items}, LIMITS) is None
    assert "publish.min_coverage_ratio" in gates.check_lists("slim/score", {**lists, "items": items - 1}, LIMITS)
