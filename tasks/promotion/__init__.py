"""Whether what a run made takes the place of what is published: the comparison, the gates, and the record of decisions."""

from tasks.promotion.decision import Candidate, Judgement, decide, standing, with_lists
from tasks.promotion.judge import METRIC, PROTOCOL, Night, judge, sizes
from tasks.promotion.limits import PromotionLimits

__all__ = [
    "METRIC",
    "PROTOCOL",
    "Candidate",
    "Judgement",
    "Night",
    "PromotionLimits",
    "decide",
    "judge",
    "sizes",
    "standing",
    "with_lists",
]
