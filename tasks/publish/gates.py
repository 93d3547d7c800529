"""Gates: checks that reject a promotion regardless of the comparison. Each returns the objection, or None."""

from typing import Any

import numpy as np

from oneclass.models.base import Model
from oneclass.models.evaluation.metrics import Mean
from oneclass.tasks.publish.settings import PromotionLimits
from oneclass.tasks.stores.matrices import Part

NUM_CHECKED_USERS = 256  # users whose scores are checked
RANDOM_MARGIN_IN_SE = 2  # standard errors by which a mean rank may lie below that of random scores
DROP_MARGIN_IN_SE = 5  # joint standard errors by which two nights' values may differ, however large the drop
NON_PERSONALIZED_MODELS = ("popularity",)  # models that score all users alike by design


def check_scores(model: Model, score: str, part: Part) -> str | None:
    """Check that scores are finite and differ between items and between users, for the first users with a target."""
    users = np.flatnonzero(np.diff(part.targets.indptr))[:NUM_CHECKED_USERS]
    histories = part.histories[users]
    scores = model.scores(histories, users=None if part.rows is None else part.rows[users], score=score)
    what = f"{model.name}/{score}"
    if not np.isfinite(scores).all():
        return f"{what} has scores that are NaN or infinite on the validation users: the fit has diverged"
    if scores.shape[1] > 1 and (scores == scores[:, :1]).all():
        return f"{what} gives every item the same score, for everybody"
    histories_differ = len({histories[row].indices.tobytes() for row in range(len(users))}) > 1
    if histories_differ and model.name not in NON_PERSONALIZED_MODELS and (scores == scores[:1]).all():
        return f"{what} gives everybody the same scores, whatever they like"
    return None


def check_better_than_random(what: str, mean_rank: Mean) -> str | None:
    """Check that a mean rank on validation is not below 0.5, that of random scores; ties count as one half."""
    if mean_rank.value + RANDOM_MARGIN_IN_SE * (mean_rank.standard_error or 0.0) >= 0.5:
        return None
    return f"the mean rank of {what} on validation is {mean_rank.value:.3f}; guesses have 0.5"


def check_size(what: str, now: int, champion_size: int, limits: PromotionLimits) -> str | None:
    """Check that the edges (or users) are not far fewer than in the current publication."""
    if now >= limits.min_size_ratio * champion_size:
        return None
    return (
        f"{now:,} {what} tonight, {champion_size:,} in the standing publication: less than publish.min_size_ratio = "
        f"{limits.min_size_ratio:g} of them. Is a log missing?"
    )


def check_drop(what: str, now: Mean, then: Mean, limits: PromotionLimits) -> str | None:
    """Check that a configuration's validation metric has not fallen far below its value on another night."""
    if now.value >= (1 - limits.max_drop) * then.value:
        return None
    if then.value - now.value <= DROP_MARGIN_IN_SE * float(np.hypot(now.standard_error or 0, then.standard_error or 0)):
        return None
    return (
        f"{what} has {now.value:.4f} on tonight's validation users and had {then.value:.4f} when the standing "
        f"publication was made: a fall of more than publish.max_drop = {limits.max_drop:g} of it. Are ids mixed up?"
    )


def check_lists(what: str, summary: dict[str, Any], limits: PromotionLimits) -> str | None:
    """Check that recommendations are not empty, not finite, constant, or of far fewer items than the current ones.

    Args:
        summary: the row of the statement `promotion/lists`.
    """
    if not summary["entries"]:
        return f"{what} recommends nothing to anybody"
    if summary["not_finite"]:
        return (
            f"{what} has {summary['not_finite']:,} recommendations whose score is NaN or infinite: the fit has diverged"
        )
    if summary["constant"]:
        return f"{what} gives all recommendations of a user the same score, for everybody"
    if summary["items"] < limits.min_coverage_ratio * summary["standing_items"]:
        return (
            f"{what} recommends {summary['items']:,} different items, the standing lists "
            f"{summary['standing_items']:,}: less "
            f"than publish.min_coverage_ratio = {limits.min_coverage_ratio:g} of them"
        )
    return None
