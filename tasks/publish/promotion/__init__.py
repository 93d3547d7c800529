"""Promotion: whether a run's model replaces the published one. Comparison, gates, and the record of decisions."""

from oneclass.tasks.publish.promotion.compare import (
    ChallengerRun,
    assess_challenger,
    assess_champion,
    observed_sizes,
)
from oneclass.tasks.publish.promotion.decision import (
    Assessment,
    Candidate,
    check_recommendations,
    load_champion,
    record_promotion,
)

__all__ = [
    "Assessment",
    "Candidate",
    "ChallengerRun",
    "assess_challenger",
    "assess_champion",
    "check_recommendations",
    "load_champion",
    "observed_sizes",
    "record_promotion",
]
