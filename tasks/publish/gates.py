"""Gates: checks that reject a promotion regardless of the comparison. Each returns the objection, or None."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oneclass.models.base import Model
from oneclass.models.evaluation.metrics import Mean
from oneclass.tasks.rules.settings import Rules
from oneclass.tasks.stores import checksums
from oneclass.tasks.stores.matrices import Part

NUM_CHECKED_USERS = 256  # users whose scores are checked
RANDOM_MARGIN_IN_SE = 2  # standard errors by which a mean rank may lie below that of random scores
MIN_COVERAGE_RATIO = 0.5  # least share of the number of items that the standing lists recommend
MAX_DROP = 0.1  # share by which the standing configuration's value may fall between two nights
DROP_MARGIN_IN_SE = 5  # joint standard errors by which two nights' values may differ, however large the drop

SEEN, RULES = "publish.seen", "[rules]"  # names among the settings of `describe_settings`
# By gate: what it compares with the standing publication's, and how the names of settings begin that both must share.
COMPARED = {
    "sizes": ("edges and users", ("binarize.",)),
    "value": ("value on validation", ("binarize.", "split.", SEEN)),
    "coverage": ("number of listed items", ("binarize.", SEEN, RULES)),
}
OF_MODELS = ("explicit_negatives", "order", "times")  # settings that a run sets if one of its models reads such data


def describe_settings(
    binarize: Mapping[str, Any], split: Mapping[str, Any], seen: str, rules: Rules, cold_share: float
) -> dict[str, Any]:
    """Return by name the settings that decide what counts as a like, who validates, and what is listed."""
    stages = {"binarize": binarize, "split": split}
    named = {f"{stage}.{name}": value for stage, of in stages.items() for name, value in of.items()}
    own = {name: value for name, value in named.items() if name.partition(".")[2] not in OF_MODELS}
    return own | {SEEN: seen, RULES: checksums.compute_key(rules.model_dump(mode="json"), cold_share)}


def is_comparable(gate: str, changed: Sequence[str]) -> bool:
    """Whether a gate of `COMPARED` can compare two publications that differ in some settings."""
    return not any(name.startswith(COMPARED[gate][1]) for name in changed)


def describe_changes(changed: Sequence[str]) -> str:
    """Say which settings differ from the standing publication's, and what is not compared for it; empty if none."""
    if not changed:
        return ""
    left_out = [what for gate, (what, _) in COMPARED.items() if not is_comparable(gate, changed)]
    return f"{', '.join(changed)} changed since the standing publication; not compared with it: {', '.join(left_out)}"


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
    if histories_differ and model.name != "popularity" and (scores == scores[:1]).all():
        return f"{what} gives everybody the same scores, whatever they like"
    return None


def check_better_than_random(what: str, mean_rank: Mean) -> str | None:
    """Check that a mean rank of known items (KNOWN_RANK) on validation is not below 0.5, that of random scores."""
    if mean_rank.value + RANDOM_MARGIN_IN_SE * (mean_rank.standard_error or 0.0) >= 0.5:
        return None
    return f"the mean rank of {what} on validation is {mean_rank.value:.3f}; guesses have 0.5"


def check_count(what: str, now: int, then: int, ratio: float) -> str | None:
    """Check that a number is not below a share of the standing publication's."""
    if now >= ratio * then:
        return None
    return f"{now:,} {what} tonight, {then:,} in the standing publication: less than {ratio:.0%} of it"


def check_drop(what: str, now: Mean, then: Mean) -> str | None:
    """Check that a configuration's validation metric has not fallen far below its value on another night."""
    noise = DROP_MARGIN_IN_SE * float(np.hypot(now.standard_error or 0, then.standard_error or 0))
    if then.value - now.value <= max(MAX_DROP * then.value, noise):
        return None
    return (
        f"{what} has {now.value:.4f} on tonight's validation users and had {then.value:.4f} when the standing "
        f"publication was made: a fall of more than {MAX_DROP:.0%} of it. Are ids mixed up?"
    )


def check_lists(summary: dict[str, Any]) -> str | None:
    """Check that recommendations are not empty, not finite or constant; `summary` is a row of `promotion/lists`."""
    if not summary["entries"]:
        return (
            f"0 recommendations for {summary['users']:,} users, of whom {summary['sated']:,} like all "
            f"{summary['catalogue']:,} items already and the others may get nothing by the rules (publish.seen = "
            "include lists again what users like; [rules] of the data set's file says what may be listed)"
        )
    if summary["not_finite"]:
        return f"{summary['not_finite']:,} recommendations have a NaN or infinite score: the fit has diverged"
    return "all recommendations of a user have the same score, for everybody" if summary["constant"] else None
