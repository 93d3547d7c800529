"""The champion, which is what stands as published, against the challenger, which is tonight's choice.

Both are judged as *configurations*: model, score and settings, fitted on tonight's training edges and scored on tonight's
validation users, paired over these. The champion's own kept fit is not asked. It was fitted on every edge there was, and
so has seen most of the edges that are held out of tonight's validation users; no challenger has, and each would lose to
that memory, night after night. A configuration that is not among tonight's models is fitted for the comparison. Where that
fails, the challenger is held against the value that the champion had on the validation users of its own night, unpaired.

The same configuration on newer edges is never worse than itself. So on most nights nothing is decided by the comparison,
and everything by the gates (`tasks/promotion/gates.py`): they look at tonight's fits, lists and sizes, and hold what one
configuration reaches tonight against what it reached when the standing publication was made.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from models.catalogue import MODELS
from models.evaluation.metrics import Mean, compare, mean
from models.settings import ModelSettings
from tasks.errors import OneclassError
from tasks.evaluate.ranks import rank
from tasks.promotion import gates
from tasks.promotion.decision import Candidate, Judgement, standing
from tasks.promotion.limits import PromotionLimits
from tasks.protocols import PROTOCOLS
from tasks.stores import fits, matrices, warehouse
from tasks.stores.home import Home
from tasks.stores.matrices import SplitMatrices
from tasks.train import fitted, is_of_the_model

logger = logging.getLogger(__name__)

PROTOCOL = "strong_generalization"  # whose validation users judge
METRIC = PROTOCOLS[PROTOCOL].tuned_by


@dataclass(frozen=True)
class Night:
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
    asked_for: bool = False

    def is_of(self, candidate: Candidate) -> bool:
        """Whether that configuration is one of tonight's."""
        settings = self.settings.get(candidate.model)
        return settings is not None and settings.model_dump(mode="json") == candidate.settings


@dataclass(frozen=True)
class _OnValidation:
    """What a fit reaches on tonight's validation users: a metric of each, its mean and the mean rank; or what is wrong."""

    of_users: np.ndarray | None = None
    value: Mean | None = None
    mean_rank: Mean | None = None
    fault: str | None = None


def judge(home: Home, night: Night, limits: PromotionLimits) -> Judgement:
    """Hold tonight's choice against what stands, before it is fitted on every edge."""
    champion = standing(home)
    challenger = Candidate(night.model, night.score, night.settings[night.model].model_dump(mode="json"), **sizes(home))
    split = _with_validation(home, night)
    found = _reached(home, night, challenger, split) if split else _OnValidation()
    if found.value:
        challenger = replace(
            challenger,
            value=found.value.value,
            standard_error=found.value.standard_error,
            validation_users=found.value.users,
        )
    judgement = Judgement(challenger, champion, limits.margin).against(
        found.fault, gates.guessing(challenger.name, found.mean_rank) if found.mean_rank else None
    )
    if champion is None:
        return replace(judgement, note="nothing stands that it could be held against")
    judgement = judgement.against(
        gates.size("edges", challenger.edges, champion.edges, limits),
        gates.size("users", challenger.users, champion.users, limits),
    )
    if found.value is None:
        return replace(judgement, note="" if found.fault else "no validation user to compare on")
    return _compared(home, night, judgement, found, split, limits)


def sizes(home: Home) -> dict[str, int]:
    """`edges` and `users` of the observed graph."""
    with warehouse.connect(home, read_only=True) as connection:
        return warehouse.select(connection, "promotion/sizes").row(0, named=True)


def _compared(
    home: Home,
    night: Night,
    judgement: Judgement,
    found: _OnValidation,
    split: SplitMatrices,
    limits: PromotionLimits,
) -> Judgement:
    """The judgement with the comparison: paired where the champion's configuration can be fitted tonight."""
    challenger, champion = judgement.challenger, judgement.champion
    same = challenger.is_as(champion)
    its = found if same else _reached(home, night, champion, split)
    before = champion.on_validation
    if its.value is not None:
        paired = compare(found.of_users, its.of_users)
        difference, error, how = paired.difference, paired.standard_error or 0.0, "over the same validation users"
        if before:
            judgement = judgement.against(gates.drop(champion.name, its.value, before, limits))
    elif before is not None:
        difference = found.value.value - before.value
        error = float(np.hypot(found.value.standard_error or 0.0, before.standard_error or 0.0))
        how = f"against the validation users of the champion's own night, for {its.fault}"
    else:
        return replace(judgement, note=f"not compared, for {its.fault}")
    numbers = f"{METRIC} {difference:+.4f} ± {error:.4f} against {champion.name}, {how}"
    judgement = replace(judgement, difference=difference, standard_error=error)
    if same:
        return replace(judgement, note="the configuration that stands, fitted to the edges of this run")
    if difference < -limits.margin * error and not night.asked_for:
        return judgement.against(f"worse by more than publish.margin = {limits.margin:g} standard errors: {numbers}")
    return replace(judgement, note=("asked for by publish.model: " if night.asked_for else "") + numbers)


def _with_validation(home: Home, night: Night) -> SplitMatrices | None:
    """Tonight's split, where it has validation users with something to be found."""
    if night.matrices_digest is None:
        return None
    split = matrices.read(home, night.matrices_digest)
    part = split.parts.get("validation")
    return split if part is not None and part.targets.nnz else None


def _reached(home: Home, night: Night, candidate: Candidate, split: SplitMatrices) -> _OnValidation:
    """What a configuration reaches on tonight's validation users, fitted on tonight's training edges."""
    if night.is_of(candidate):
        if candidate.model not in night.fits:
            return _OnValidation(fault=f"{candidate.model} could not be fitted tonight")
        digest = night.fits[candidate.model]
    else:
        try:
            digest = _fit(home, night, candidate, split)
        except Exception as error:
            if not is_of_the_model(error):
                raise
            logger.warning("%s: cannot be fitted for the comparison: %s", candidate.name, error)
            return _OnValidation(fault=f"{candidate.model} with its settings could not be fitted tonight")
    model, part = fits.load(home, candidate.model, digest), split.parts["validation"]
    if fault := gates.scores(model, candidate.score, part):
        return _OnValidation(fault=fault)
    try:
        of_users, _ = rank(model, candidate.score, part)
    except OneclassError as error:
        return _OnValidation(fault=str(error))
    return _OnValidation(of_users[METRIC], mean(of_users[METRIC]), mean(of_users["mean_rank_midtie"]))


def _fit(home: Home, night: Night, candidate: Candidate, split: SplitMatrices) -> str:
    settings: Any = MODELS[candidate.model].Settings.from_saved(candidate.settings)
    if settings.reads_order and split.places is None:
        raise ValueError("its recency_exponent reads the order of likes, which tonight's split does not keep")
    logger.info("%s stands as published and is fitted for the comparison", candidate.name)
    made = fitted(
        home,
        matrices_digest=night.matrices_digest,
        model=candidate.model,
        settings=settings,
        seed=night.seed,
    )
    return made.digest
