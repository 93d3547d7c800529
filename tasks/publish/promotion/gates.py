"""Gates: what refuses promotion whatever a comparison says. Each gives the reason in words, or None."""

from typing import Any

import numpy as np

from oneclass.models.base import Model
from oneclass.models.evaluation.metrics import Mean
from oneclass.tasks.publish.settings import PromotionLimits
from oneclass.tasks.stores.matrices import Part

NUM_CHECKED_USERS = 256  # whose scores are looked at one by one
RANDOM_MARGIN_IN_SE = 2  # standard errors that a mean rank may lie below that of guesses
DROP_MARGIN_IN_SE = 5  # joint standard errors that two nights' values may differ by, however large the drop
NON_PERSONALIZED_MODELS = ("popularity",)  # models that score every user alike, by what they are


def check_scores(model: Model, score: str, part: Part) -> str | None:
    """Whether the scores are finite and tell items, and users, apart: those of the first users with a target."""
    users = np.flatnonzero(np.diff(part.targets.indptr))[:NUM_CHECKED_USERS]
    histories = part.histories[users]
    found = model.scores(histories, users=None if part.rows is None else part.rows[users], score=score)
    what = f"{model.name}/{score}"
    if not np.isfinite(found).all():
        return f"{what} has scores that are NaN or infinite on the validation users: the fit has diverged"
    if found.shape[1] > 1 and (found == found[:, :1]).all():
        return f"{what} gives every item the same score, for everybody"
    differing = len({histories[row].indices.tobytes() for row in range(len(users))}) > 1
    if differing and model.name not in NON_PERSONALIZED_MODELS and (found == found[:1]).all():
        return f"{what} gives everybody the same scores, whatever they like"
    return None


def check_better_than_random(what: str, mean_rank: Mean) -> str | None:
    """Whether a mean rank on validation lies below 0.5, that of guesses; ties count as one half, as guesses have them."""
    if mean_rank.value + RANDOM_MARGIN_IN_SE * (mean_rank.standard_error or 0.0) >= 0.5:
        return None
    return f"the mean rank of {what} on validation is {mean_rank.value:.3f}; guesses have 0.5"


def check_size(what: str, now: int, champion_size: int, limits: PromotionLimits) -> str | None:
    """Whether there are far fewer edges (or users) than the standing publication was made of."""
    if now >= limits.min_size_ratio * champion_size:
        return None
    return (
        f"{now:,} {what} tonight, {champion_size:,} in the standing publication: less than publish.min_size_ratio = "
        f"{limits.min_size_ratio:g} of them. Is a log missing?"
    )


def check_drop(what: str, now: Mean, then: Mean, limits: PromotionLimits) -> str | None:
    """Whether one configuration's metric on validation has fallen far below that of another night."""
    if now.value >= (1 - limits.max_drop) * then.value:
        return None
    if then.value - now.value <= DROP_MARGIN_IN_SE * float(np.hypot(now.standard_error or 0, then.standard_error or 0)):
        return None
    return (
        f"{what} has {now.value:.4f} on tonight's validation users and had {then.value:.4f} when the standing "
        f"publication was made: a fall of more than publish.max_drop = {limits.max_drop:g} of it. Are ids mixed up?"
    )


def check_lists(what: str, found: dict[str, Any], limits: PromotionLimits) -> str | None:
    """Whether the recommendations are empty, not finite, constant, or of far fewer items than those that stand.

    Args:
        found: the row of the statement `promotion/lists`.
    """
    if not found["entries"]:
        return f"{what} recommends nothing to anybody"
    if found["not_finite"]:
        return (
            f"{what} has {found['not_finite']:,} recommendations whose score is NaN or infinite: the fit has diverged"
        )
    if found["constant"]:
        return f"{what} gives all recommendations of a user the same score, for everybody"
    if found["items"] < limits.min_coverage_ratio * found["standing_items"]:
        return (
            f"{what} recommends {found['items']:,} different items, the standing lists {found['standing_items']:,}: less "
            f"than publish.min_coverage_ratio = {limits.min_coverage_ratio:g} of them"
        )
    return None
