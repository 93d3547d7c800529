"""The champion, which is what stands as published, against the challenger, which is tonight's choice.

Both are judged as *configurations*: model, score and settings, fitted on tonight's training edges and scored on tonight's
validation users, paired over these. The champion's own kept fit is not asked. It was fitted on every edge there was, and
so has seen most of the edges that are held out of tonight's validation users; no challenger has, and each would lose to
that memory, night after night. A configuration that is not among tonight's models is fitted for the comparison. Where that
fails, the challenger is held against the value that the champion had on the validation users of its own night, unpaired.

The same configuration on newer edges is never worse than itself. So on most nights nothing is decided by the comparison,
and everything by the gates (`tasks/publish/promotion/gates.py`): they look at tonight's fits, lists and sizes, and hold what one
configuration reaches tonight against what it reached when the standing publication was made.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from oneclass.models.evaluation.metrics import Mean, compare_paired, mean_and_error
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate.ranking import rank_part_targets
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.publish.promotion import gates
from oneclass.tasks.publish.promotion.decision import Assessment, Candidate, load_champion
from oneclass.tasks.publish.settings import PromotionLimits
from oneclass.tasks.stores import fits, matrices, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.train import is_model_error, load_or_fit

logger = logging.getLogger(__name__)

PROMOTION_PROTOCOL = "strong_generalization"  # whose validation users judge
PROMOTION_METRIC = PROTOCOLS[PROMOTION_PROTOCOL].tuned_by


@dataclass(frozen=True)
class ChallengerRun:
    """What a run brings to the decision.

    Attributes:
        model, score: its choice.
        settings: of each of the run's models.
        fits: digest of each model that was fitted on the training edges of strong_generalization.
        matrices_digest: of that protocol's split; None where the run has none.
        asked_for: the choice was asked for by publish.model, so that the comparison alone does not refuse it.
    """

    model: str
    score: str
    settings: Mapping[str, ModelSettings]
    fits: Mapping[str, str] = field(default_factory=dict)
    matrices_digest: str | None = None
    seed: int = 0
    manual: bool = False

    def produced(self, candidate: Candidate) -> bool:
        """Whether that configuration is one of tonight's."""
        settings = self.settings.get(candidate.model)
        if settings is None:
            return False
        return settings.model_dump(mode="json") == settings.replace_deprecated(candidate.settings)[0]


@dataclass(frozen=True)
class _ValidationResult:
    """What a fit reaches on tonight's validation users: a metric of each, its mean and the mean rank; or what is wrong."""

    of_users: np.ndarray | None = None
    value: Mean | None = None
    mean_rank: Mean | None = None
    fault: str | None = None


def assess_challenger(home: Home, run: ChallengerRun, limits: PromotionLimits) -> Assessment:
    """Hold tonight's choice against what stands, before it is fitted on every edge."""
    champion = load_champion(home)
    challenger = Candidate(
        run.model, run.score, run.settings[run.model].model_dump(mode="json"), **observed_sizes(home)
    )
    split = _load_validation_split(home, run)
    found = _evaluate_on_validation(home, run, challenger, split) if split else _ValidationResult()
    if found.value:
        challenger = replace(
            challenger,
            value=found.value.value,
            standard_error=found.value.standard_error,
            validation_users=found.value.users,
        )
    judgement = Assessment(challenger, champion, limits.margin).against(
        found.fault, gates.check_better_than_random(challenger.name, found.mean_rank) if found.mean_rank else None
    )
    if champion is None:
        return replace(judgement, note="nothing stands that it could be held against")
    judgement = judgement.against(
        gates.check_size("edges", challenger.edges, champion.edges, limits),
        gates.check_size("users", challenger.users, champion.users, limits),
    )
    if split is None or found.value is None:
        return replace(judgement, note="" if found.fault else "no validation user to compare on")
    return _compare_with_champion(home, run, judgement, found, split, limits)


def observed_sizes(home: Home) -> dict[str, int]:
    """`edges` and `users` of the observed graph."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        counts = "select count(*) as edges, count(distinct user_index) as users from indexed.interactions"
        return warehouse.query(connection, counts).row(0, named=True)


def _compare_with_champion(
    home: Home,
    run: ChallengerRun,
    assessment: Assessment,
    found: _ValidationResult,
    split: SplitMatrices,
    limits: PromotionLimits,
) -> Assessment:
    """The judgement with the comparison: paired where the champion's configuration can be fitted tonight."""
    challenger, champion = assessment.challenger, assessment.champion
    assert champion is not None and found.value is not None and found.of_users is not None
    same = challenger.has_same_configuration(champion)
    its = found if same else _evaluate_on_validation(home, run, champion, split)
    before = champion.validation_summary
    if its.value is not None and its.of_users is not None:
        paired = compare_paired(found.of_users, its.of_users)
        difference, error, how = paired.difference, paired.standard_error or 0.0, "over the same validation users"
        if before:
            assessment = assessment.against(gates.check_drop(champion.name, its.value, before, limits))
    elif before is not None:
        difference = found.value.value - before.value
        error = float(np.hypot(found.value.standard_error or 0.0, before.standard_error or 0.0))
        how = f"against the validation users of the champion's own night, for {its.fault}"
    else:
        return replace(assessment, note=f"not compared, for {its.fault}")
    numbers = f"{PROMOTION_METRIC} {difference:+.4f} ± {error:.4f} against {champion.name}, {how}"
    assessment = replace(assessment, difference=difference, standard_error=error)
    if same:
        return replace(assessment, note="the configuration that stands, fitted to the edges of this run")
    if difference < -limits.margin * error and not run.manual:
        return assessment.against(f"worse by more than publish.margin = {limits.margin:g} standard errors: {numbers}")
    return replace(assessment, note=("asked for by publish.model: " if run.manual else "") + numbers)


def _load_validation_split(home: Home, run: ChallengerRun) -> SplitMatrices | None:
    """Tonight's split, where it has validation users with something to be found."""
    if run.matrices_digest is None:
        return None
    split = matrices.load_split(home, run.matrices_digest)
    part = split.parts.get("validation")
    return split if part is not None and part.targets.nnz else None


def _evaluate_on_validation(
    home: Home, run: ChallengerRun, candidate: Candidate, split: SplitMatrices
) -> _ValidationResult:
    """What a configuration reaches on tonight's validation users, fitted on tonight's training edges."""
    if run.produced(candidate):
        if candidate.model not in run.fits:
            return _ValidationResult(fault=f"{candidate.model} could not be fitted tonight")
        digest = run.fits[candidate.model]
    else:
        try:
            digest = _load_or_fit_candidate(home, run, candidate, split)
        except Exception as error:
            if not is_model_error(error):
                raise
            logger.warning("%s: cannot be fitted for the comparison: %s", candidate.name, error)
            return _ValidationResult(fault=f"{candidate.model} with its settings could not be fitted tonight")
    model, part = fits.load_fit(home, candidate.model, digest), split.parts["validation"]
    if fault := gates.check_scores(model, candidate.score, part):
        return _ValidationResult(fault=fault)
    try:
        of_users, _ = rank_part_targets(model, candidate.score, part)
    except OneclassError as error:
        return _ValidationResult(fault=str(error))
    return _ValidationResult(
        of_users[PROMOTION_METRIC],
        mean_and_error(of_users[PROMOTION_METRIC]),
        mean_and_error(of_users["mean_rank_midtie"]),
    )


def _load_or_fit_candidate(home: Home, run: ChallengerRun, candidate: Candidate, split: SplitMatrices) -> str:
    assert run.matrices_digest is not None  # the split has been loaded
    settings: Any = MODELS[candidate.model].Settings.from_saved(candidate.settings)
    if settings.reads_order and split.places is None:
        raise ValueError("its recency_exponent reads the order of likes, which tonight's split does not keep")
    logger.info("%s stands as published and is fitted for the comparison", candidate.name)
    made = load_or_fit(
        home,
        matrices_digest=run.matrices_digest,
        model=candidate.model,
        settings=settings,
        seed=run.seed,
    )
    return made.digest
