"""Comparison of the champion, the published configuration, with the challenger, the choice of this run.

Both are compared as *configurations*: model, score and settings, fitted on this run's training edges and evaluated on
its validation users, paired over these. The champion's published fit is not evaluated. It was fitted on every edge, and
so has seen most of the edges that are held out of the validation users; every challenger would lose to that leak. A
configuration that is not among the run's models is fitted for the comparison. If that fails, the challenger is
compared, unpaired, with the champion's value on the validation users of its own run.

A champion that is among the run's own models took part in the choice (`tasks/publish/choice.py`), so the comparison
decides only about other configurations. The same configuration on newer edges is never worse than itself. So on most
nights the comparison decides nothing, and the gates (`tasks/publish/gates.py`) decide: they check this run's fits,
lists and sizes, and compare a configuration's value with its value at the time of the current publication.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import duckdb
import numpy as np

from oneclass.models.evaluation.metrics import Mean, compare_paired, mean_and_error
from oneclass.models.evaluation.ranks_apart import KNOWN_RANK
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.errors import NothingToPublish, OneclassError
from oneclass.tasks.evaluate.ranking import TargetRankMetrics, rank_part_targets
from oneclass.tasks.promotion_log import Decision, record_decision
from oneclass.tasks.protocols import VALIDATION_METRIC, FittedSplit, describe_folds
from oneclass.tasks.publish import gates
from oneclass.tasks.publish.settings import PromotionLimits
from oneclass.tasks.stores import fits, matrices, publications, published_model, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.train import is_model_error, load_or_fit

logger = logging.getLogger(__name__)

PROMOTION_METRIC = VALIDATION_METRIC.removeprefix("validation_")


@dataclass(frozen=True)
class Candidate:
    """A configuration and the data it was fitted on; a publication stores it as plain data.

    Attributes:
        settings: the model's settings as JSON.
        edges, users: size of the observed graph of its recommendations.
        value, standard_error, validation_users: the validation metric of that run; None if it had none.
        protocol: the one of these validation users; None if there were none.
        made_with: further settings that gates compare only among equals (`gates.describe_settings`).
    """

    model: str
    score: str
    settings: dict[str, Any]
    edges: int
    users: int
    value: float | None = None
    standard_error: float | None = None
    validation_users: int = 0
    protocol: str | None = "strong_generalization"  # of a publication whose manifest does not say
    made_with: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Model and score, such as `mrf_dense/score`."""
        return f"{self.model}/{self.score}"

    @property
    def validation_summary(self) -> Mean | None:
        """The metric on validation."""
        return None if self.value is None else Mean(self.value, self.standard_error, self.validation_users)

    def load_settings(self) -> Any:
        """Build the model's settings, which an earlier version may have saved."""
        return MODELS[self.model].Settings.from_saved(self.settings)

    def has_same_configuration(self, other: "Candidate") -> bool:
        """Whether both have the same model, score and settings."""
        return (self.model, self.score, self.settings) == (other.model, other.score, other.settings)


@dataclass(frozen=True)
class Assessment:
    """The comparison of challenger and champion, before the challenger's recommendations are computed.

    Attributes:
        champion: the published configuration; None if nothing is published, or its configuration is unknown.
        difference, standard_error: of the validation metric, challenger minus champion; None if not compared.
        refusals: objections to the challenger; empty if there are none.
        note: why it is promoted, or how they were compared.
        manual: whether a person asked for the challenger, which overrides all objections.
    """

    challenger: Candidate
    champion: Candidate | None
    margin: float
    difference: float | None = None
    standard_error: float | None = None
    refusals: tuple[str, ...] = ()
    note: str = ""
    manual: bool = False

    @property
    def keeps_champion(self) -> bool:
        """Whether the champion stays published; without one, the challenger is promoted."""
        return bool(self.refusals) and self.champion is not None and not self.manual

    @property
    def changed(self) -> list[str]:
        """The settings that differ between both, as far as they are known, besides the model's own."""
        then, now = self.champion.made_with if self.champion else {}, self.challenger.made_with
        return [name for name in now if name in then and now[name] != then[name]]

    def with_objections(self, *reasons: str | None) -> "Assessment":
        """Return the assessment with more objections to the challenger; None is no objection."""
        return replace(self, refusals=self.refusals + tuple(reason for reason in reasons if reason))


def load_champion(home: Home) -> Candidate | None:
    """Load the published configuration; None if nothing is published, or its configuration is unknown.

    The warehouse's record of the publication is trusted before its manifest.
    """
    with warehouse.open_warehouse(home, read_only=True) as connection:
        facts = publications.load_recorded_facts(connection) or publications.load_current(home)
    if not facts.get("recommended"):
        return None
    known: dict[str, Any] = {"made_with": {gates.SEEN: published_model.seen_choice(facts)}}
    return Candidate(**(known | facts["recommended"]))


def check_recommendations(
    connection: duckdb.DuckDBPyConnection, assessment: Assessment | None, limits: PromotionLimits
) -> Assessment | None:
    """Check the challenger's recommendations in the temporary table `ranked`.

    Raises:
        NothingToPublish: there are none, and the champion cannot stay in their place.
    """
    summary = warehouse.select(connection, "promotion/lists").row(0, named=True)
    if not summary["entries"] and (assessment is None or assessment.champion is None or assessment.manual):
        raise NothingToPublish(gates.describe_empty(summary))
    if assessment is None:
        return None
    assessment = assessment.with_objections(gates.check_lists(assessment.challenger.name, summary))
    if assessment.champion is None or not gates.is_comparable("coverage", assessment.changed):
        return assessment
    return assessment.with_objections(gates.check_coverage(assessment.challenger.name, summary, limits))


def record_promotion(connection: duckdb.DuckDBPyConnection, run_id: str, assessment: Assessment) -> Decision:
    """Decide, and write the row of this run, replacing that of an earlier try."""
    promoted = not assessment.keeps_champion
    reasons = [*assessment.refusals, assessment.note] if not promoted else [assessment.note, *assessment.refusals]
    decision = Decision(
        run_id,
        datetime.now(UTC).replace(tzinfo=None),
        assessment.champion.name if assessment.champion else None,
        assessment.challenger.name,
        None if assessment.difference is None else VALIDATION_METRIC,
        assessment.difference,
        assessment.standard_error,
        assessment.margin,
        promoted,
        "; ".join(filter(None, [*reasons, gates.describe_changes(assessment.changed)])),
    )
    record_decision(connection, decision)
    return decision


CHAMPION_NOTE = "the same model and settings, fitted to what is new"


@dataclass(frozen=True)
class ChallengerRun:
    """A run's input to the decision.

    Attributes:
        model, score: its choice.
        settings: settings of each model of the run.
        judged: the split that has the validation users, or the folds, with the fits on each; empty if the run has none.
        manual: whether the choice was set by publish.model, so that the comparison alone does not reject it.
        reason: why the run chose it.
        protocol: the one of the validation users; None if the run has none.
        made_with: as in `Candidate`.
    """

    model: str
    score: str
    settings: Mapping[str, ModelSettings]
    judged: Sequence[FittedSplit] = ()
    seed: int = 0
    manual: bool = False
    reason: str = ""
    protocol: str | None = "strong_generalization"
    made_with: Mapping[str, Any] = field(default_factory=dict)

    def has_produced(self, candidate: Candidate) -> bool:
        """Whether the run fitted this configuration."""
        settings = self.settings.get(candidate.model)
        if settings is None:
            return False
        return settings == settings.from_saved(candidate.settings)

    def has_fitted(self, model: str) -> bool:
        """Whether the model was fitted on every split."""
        return bool(self.judged) and all(model in fits for _, fits in self.judged)


@dataclass(frozen=True)
class _ValidationResult:
    """A fit's metric on the validation users, its mean, and the mean of KNOWN_RANK; or why there is none (`fault`)."""

    of_users: np.ndarray | None = None
    value: Mean | None = None
    mean_rank: Mean | None = None
    fault: str | None = None


def assess_challenger(home: Home, run: ChallengerRun, limits: PromotionLimits) -> Assessment:
    """Compare a run's choice with the champion, before the choice is fitted on every edge."""
    settings = run.settings[run.model].model_dump(mode="json")
    sizes = observed_sizes(home)
    challenger = Candidate(run.model, run.score, settings, edges=sizes["edges"], users=sizes["users"])
    assessment = _assess(home, run, challenger, limits)
    return replace(assessment, note="; ".join(filter(None, [assessment.note, run.reason])))


def assess_champion(home: Home, run: ChallengerRun, refused: Decision, limits: PromotionLimits) -> Assessment | None:
    """Assess the champion's configuration on this run's edges, to be published in place of a refused challenger.

    Args:
        refused: the decision on the challenger.

    Returns:
        None if the challenger was that configuration, or what is published stays.
    """
    champion = load_champion(home)
    if champion is None or (champion.model, champion.score) == (run.model, run.score) and run.has_produced(champion):
        return None
    assessment = _assess(home, run, replace(champion, **observed_sizes(home)), limits)
    note = f"{CHAMPION_NOTE}; {refused.challenger} was refused: {refused.reason}"
    return None if assessment.keeps_champion else replace(assessment, note=note)


def _assess(home: Home, run: ChallengerRun, challenger: Candidate, limits: PromotionLimits) -> Assessment:
    champion, splits = load_champion(home), _load_validation_splits(home, run)
    result = _evaluate_on_validation(home, run, challenger, splits) if splits else _ValidationResult()
    mean = result.value
    challenger = replace(
        challenger,
        protocol=run.protocol,
        made_with=dict(run.made_with),
        value=mean and mean.value,
        standard_error=mean and mean.standard_error,
        validation_users=mean.users if mean else 0,
    )
    assessment = Assessment(challenger, champion, limits.margin).with_objections(
        result.fault, gates.check_better_than_random(challenger.name, result.mean_rank) if result.mean_rank else None
    )
    if champion is None:
        return replace(assessment, note="first publication")
    if gates.is_comparable("sizes", assessment.changed):
        assessment = assessment.with_objections(
            gates.check_size("edges", challenger.edges, champion.edges, limits),
            gates.check_size("users", challenger.users, champion.users, limits),
        )
    if not splits or result.value is None:
        return replace(assessment, note="" if result.fault else "no validation user to compare on")
    return _compare_with_champion(home, run, assessment, result, splits, limits)


def observed_sizes(home: Home) -> dict[str, int]:
    """Return the `edges` and `users` of the observed graph."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        counts = "select count(*) as edges, count(distinct user_index) as users from indexed.interactions"
        return warehouse.query(connection, counts).row(0, named=True)


def _compare_with_champion(
    home: Home,
    run: ChallengerRun,
    assessment: Assessment,
    result: _ValidationResult,
    splits: Sequence[SplitMatrices],
    limits: PromotionLimits,
) -> Assessment:
    """Add the comparison to the assessment: paired if the champion's configuration can be fitted in this run."""
    challenger, champion = assessment.challenger, assessment.champion
    assert champion is not None and result.value is not None
    same = challenger.has_same_configuration(champion)
    champion_result = result if same else _evaluate_on_validation(home, run, champion, splits)
    of_users = result.of_users
    if not same and challenger.model == champion.model and len(splits) > 1:
        # On a fold tonight's blend has weights that other folds chose, but the champion's were chosen by all users.
        of_users = _evaluate_on_validation(home, run, challenger, splits, as_champion=True).of_users
    is_comparable = champion.protocol == run.protocol and gates.is_comparable("value", assessment.changed)
    before = champion.validation_summary if is_comparable else None
    if champion_result.value is not None and champion_result.of_users is not None and of_users is not None:
        paired = compare_paired(of_users, champion_result.of_users)
        difference, error = paired.difference, paired.standard_error or 0.0
        how = f"over the same validation users ({paired.users:,}{describe_folds(len(splits))})"
        if before:
            assessment = assessment.with_objections(
                gates.check_drop(champion.name, champion_result.value, before, limits)
            )
    elif before is not None:
        difference = result.value.value - before.value
        error = float(np.hypot(result.value.standard_error or 0.0, before.standard_error or 0.0))
        how = f"against the validation users of the champion's own night, for {champion_result.fault}"
    else:
        return replace(assessment, note=f"not compared, for {champion_result.fault}")
    numbers = f"{run.protocol}, {PROMOTION_METRIC} {difference:+.4f} ± {error:.4f} against {champion.name}, {how}"
    assessment = replace(assessment, difference=difference, standard_error=error)
    if same:
        return replace(assessment, note=CHAMPION_NOTE)
    asked_for = "asked for by publish.model: " if run.manual else ""
    if run.has_fitted(champion.model) and run.has_produced(champion):
        return replace(assessment, note=f"{asked_for}{numbers}, which the run could choose too")
    if difference < -limits.margin * error and not run.manual:
        return assessment.with_objections(
            f"worse by more than publish.margin = {limits.margin:g} standard errors: {numbers}"
        )
    return replace(assessment, note=asked_for + numbers)


def _load_validation_splits(home: Home, run: ChallengerRun) -> list[SplitMatrices]:
    """Load the run's split or folds; none if no validation user has a target."""
    splits = [matrices.load_split(home, digest) for digest, _ in run.judged]
    has_targets = any("validation" in split.parts and split.parts["validation"].targets.nnz for split in splits)
    return splits if has_targets else []


def _evaluate_on_validation(
    home: Home,
    run: ChallengerRun,
    candidate: Candidate,
    splits: Sequence[SplitMatrices],
    *,
    as_champion: bool = False,
) -> _ValidationResult:
    """Evaluate a configuration on the run's validation users, fitted on the training edges of their split or fold.

    Args:
        as_champion: with its own settings on every fold, also where the run's blend has others.
    """
    if run.has_produced(candidate) and not as_champion:
        if not run.has_fitted(candidate.model):
            return _ValidationResult(fault=f"{candidate.model} could not be fitted tonight")
        digests = [of_fold[candidate.model] for _, of_fold in run.judged]
    else:
        try:
            digests = _load_or_fit_candidate(home, run, candidate, splits)
        except Exception as error:
            if not is_model_error(error):
                raise
            logger.warning("%s: cannot be fitted for the comparison: %s", candidate.name, error)
            return _ValidationResult(fault=f"{candidate.model} with its settings could not be fitted tonight")
    ranked = []
    for digest, split in zip(digests, splits, strict=True):
        model, part = fits.load_fit(home, candidate.model, digest), split.parts["validation"]
        if not part.targets.nnz:
            continue
        if fault := gates.check_scores(model, candidate.score, part):
            return _ValidationResult(fault=fault)
        try:
            ranked.append(rank_part_targets(model, candidate.score, part))
        except OneclassError as error:
            return _ValidationResult(fault=str(error))
    of_users = TargetRankMetrics.concatenate(ranked).of_users
    has_rank = not np.isnan(known_ranks := of_users[KNOWN_RANK]).all()
    return _ValidationResult(
        of_users[PROMOTION_METRIC],
        mean_and_error(of_users[PROMOTION_METRIC]),
        mean_and_error(known_ranks) if has_rank else None,
    )


def _load_or_fit_candidate(
    home: Home, run: ChallengerRun, candidate: Candidate, splits: Sequence[SplitMatrices]
) -> list[str]:
    settings = candidate.load_settings()
    if settings.reads_order and splits[0].recency_ranks is None:
        raise ValueError("its recency_exponent reads the order of likes, which tonight's split does not keep")
    if settings.reads_times and splits[0].event_ages is None:
        raise ValueError("it reads the times of events, which tonight's split does not keep")
    logger.info("%s is published and is fitted for the comparison", candidate.name)
    return [
        load_or_fit(home, matrices_digest=digest, model=candidate.model, settings=settings, seed=run.seed).digest
        for digest, _ in run.judged
    ]
