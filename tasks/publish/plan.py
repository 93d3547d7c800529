"""What a run publishes, as data: the lists and what they are made of, by which rules, and how the model was judged."""

import logging
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import NamedTuple

from oneclass.tasks.publish.promotion import Assessment
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend.exploration import Exploration
from oneclass.tasks.recommend.like_calibration import UNCALIBRATED, Calibrations, has_like
from oneclass.tasks.rules.settings import NO_RULES, DeclaredRules

logger = logging.getLogger(__name__)

EXPLORED_SHARE = 0.2  # of the places of a list that explores


class RecommendationSpec(NamedTuple):
    """The recommendations to compute.

    Attributes:
        digest, matrices_digest: of the model's fit, and of the edges that it was fitted on.
        exclude_seen: whether to leave out the items of the users' histories.
        companion: name and digest of the fit on the same edges that says how sure and why (`describe_items`).
        calibrations: of its `like`.
        exploration: how lists explore that are published beside the others; None for no such lists.
    """

    model: str
    score: str
    digest: str
    matrices_digest: str
    top_n: int
    exclude_seen: bool = True
    companion: tuple[str, str] | None = None
    calibrations: Calibrations = UNCALIBRATED
    exploration: Exploration | None = None


@dataclass(frozen=True, kw_only=True)
class PublicationPlan:
    """What to publish.

    Attributes:
        lists: what the recommendations are made of. None leaves those that are published: the assessment keeps the
            champion, or a run of `given` alone publishes only its evaluation.
        assessment: of the configuration behind the lists; None publishes them without a decision.
        declared: the rules that lists obey, and the placements that have lists of their own.
        evaluated: the run whose evaluation is published; by default the run that publishes.
    """

    settings: PublishSettings = field(default_factory=lambda: PublishSettings.model_validate({}))
    lists: RecommendationSpec | None = None
    assessment: Assessment | None = None
    declared: DeclaredRules = NO_RULES
    evaluated: str | None = None

    @property
    def rules(self) -> DeclaredRules:
        """The declared rules, with the share of new items that `publish.cold_share` allows."""
        return self.declared.model_copy(update={"cold_share": self.settings.cold_share})


def specify_recommendations(
    settings: PublishSettings, lists: RecommendationSpec, *, seed: int = 0
) -> RecommendationSpec:
    """Add how lists explore, by draws with this seed, and the model as its own companion if it has a like."""
    if lists.companion is None and has_like(lists.model):
        lists = lists._replace(companion=(lists.model, lists.digest))
    if settings.explore == "off":
        return lists
    if lists.companion is None:
        logger.warning("publish.explore = %s: no list explores, since no model of the run has a like", settings.explore)
        return lists
    night = (datetime.now(UTC).date() - date(1970, 1, 1)).days
    return lists._replace(exploration=Exploration(EXPLORED_SHARE, night, seed))
