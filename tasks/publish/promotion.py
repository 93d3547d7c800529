"""Comparison of the champion, the published configuration, with the challenger, the choice of this run.

Both are compared as *configurations*: model, score and settings, fitted on this run's training edges and evaluated on
its validation users, paired over these. The champion's published fit saw most of the edges that are held out of them,
so a champion that is not among the run's models is fitted for the comparison. If that fails, the challenger is
compared, unpaired, with the champion's value on the validation users of its own run. A champion among the run's models
took part in the choice (`tasks/publish/choice.py`), so that the gates (`tasks/publish/gates.py`) decide alone.
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
from oneclass.models.model_files import upgrade_settings
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.errors import NothingToPublish, OneclassError
from oneclass.tasks.evaluate.ranking import TargetRankMetrics, rank_part_targets
from oneclass.tasks.protocols import VALIDATION_METRIC, FittedSplit, describe_folds
from oneclass.tasks.publish import gates
from oneclass.tasks.publish.choice import ChosenModel
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.stores import fits, matrices, publications, published_model, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.stores.publications import Decision, record_decision
from oneclass.tasks.train import is_model_error, load_or_fit

logger = logging.getLogger(__name__)

PROMOTION_METRIC = VALIDATION_METRIC.removeprefix("validation_")
CHAMPION_NOTE = "the same model and settings, fitted to what is new"


@dataclass(frozen=True)
class Candidate:
    """A configuration and the data it was fitted on; a publication stores it as plain data.

    Attributes:
        settings: the model's settings as JSON.
        edges, users: size of the observed graph of its recommendations.
        value, standard_error, validation_users, protocol: the validation metric of that run; None if it had none.
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

    def load_settings(self) -> Any:
        """Build the model's settings, which an earlier version may have saved."""
        return upgrade_settings(MODELS[self.model].Settings, self.settings)


@dataclass(frozen=True)
class Assessment:
    """The comparison of challenger and champion, before the challenger's recommendations are computed.

    Attributes:
        champion: as `load_champion` returns it.
        difference, standard_error: of the validation metric, challenger minus champion; None if not compared.
        note: why it is promoted, or how they were compared.
        manual: whether a person asked for the challenger, which overrides all objections.
    """

    challenger: Candidate
    champion: Candidate | None
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
    """Load the published configuration; None if nothing is published, or its configuration is unknown."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        facts = publications.load_recorded_facts(connection) or publications.load_current(home)
    if not facts.get("recommended"):
        return None
    known: dict[str, Any] = {"made_with": {gates.SEEN: published_model.seen_choice(facts)}}
    return Candidate(**(known | facts["recommended"]))


def check_recommendations(connection: duckdb.DuckDBPyConnection, assessment: Assessment | None) -> Assessment | None:
    """Check the challenger's recommendations in the temporary table `ranked`.

    Raises:
        NothingToPublish: there are none, and the champion cannot stay in their place.
    """
    summary = warehouse.select(connection, "promotion/lists").row(0, named=True)
    objections = [gates.check_lists(summary)]
    if not summary["entries"] and (assessment is None or assessment.champion is None or assessment.manual):
        raise NothingToPublish(f"{objections[0]}; nothing was published.")
    if assessment is None:
        return None
    if assessment.champion and gates.is_comparable("coverage", assessment.changed):
        counts = summary["items"], summary["standing_items"]
        objections.append(gates.check_count("different items in lists", *counts, gates.MIN_COVERAGE_RATIO))
    return assessment.with_objections(*objections)


def record_promotion(
    connection: duckdb.DuckDBPyConnection, run_id: str, assessment: Assessment, margin: float
) -> Decision:
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
        margin,
        promoted,
        "; ".join(filter(None, [*reasons, gates.describe_changes(assessment.changed)])),
    )
    record_decision(connection, decision)
    return decision


@dataclass(frozen=True)
class Night:
    """What a run has to decide by.

    Attributes:
        settings: of each model of the run.
        judged: the split that has the validation users, or the folds, with the fits on each; empty if the run has none.
        protocol, made_with: as in `Candidate`.
    """

    home: Home
    settings: Mapping[str, ModelSettings]
    judged: Sequence[FittedSplit] = ()
    seed: int = 0
    protocol: str | None = "strong_generalization"
    made_with: Mapping[str, Any] = field(default_factory=dict)

    def has_produced(self, candidate: Candidate) -> bool:
        """Whether the run fitted this configuration."""
        settings = self.settings.get(candidate.model)
        return settings is not None and settings == upgrade_settings(type(settings), candidate.settings)

    def has_fitted(self, model: str) -> bool:
        """Whether the model was fitted on every split."""
        return bool(self.judged) and all(model in fits for _, fits in self.judged)

    def load_splits(self) -> list[SplitMatrices]:
        """Load the split or the folds; none if no validation user has a target."""
        splits = [matrices.load_split(self.home, digest) for digest, _ in self.judged]
        has_targets = any("validation" in split.parts and split.parts["validation"].targets.nnz for split in splits)
        return splits if has_targets else []


class _NotJudged(OneclassError):
    """A configuration has no value on the validation users; says why."""


def assess_challenger(night: Night, choice: ChosenModel, limits: PublishSettings) -> Assessment:
    """Compare a run's choice with the champion, before the choice is fitted on every edge."""
    settings = night.settings[choice.model].model_dump(mode="json")
    assessment = _assess(night, choice.model, choice.score, settings, limits)
    return replace(assessment, note="; ".join(filter(None, [assessment.note, choice.reason])))


def assess_champion(night: Night, refused: Decision, limits: PublishSettings) -> Assessment | None:
    """Assess the champion's configuration on this run's edges, to be published in place of a refused challenger.

    Returns:
        None if the challenger was that configuration, or what is published stays.
    """
    champion = load_champion(night.home)
    if champion is None or (champion.name == refused.challenger and night.has_produced(champion)):
        return None
    assessment = _assess(night, champion.model, champion.score, champion.settings, limits)
    note = f"{CHAMPION_NOTE}; {refused.challenger} was refused: {refused.reason}"
    return None if assessment.keeps_champion else replace(assessment, note=note)


def _assess(night: Night, model: str, score: str, settings: dict[str, Any], limits: PublishSettings) -> Assessment:
    splits, of_users, objections = night.load_splits(), None, list[str | None]()
    of_run: dict[str, Any] = {"protocol": night.protocol, "made_with": dict(night.made_with)}
    challenger = Candidate(model, score, settings, **observed_sizes(night.home), **of_run)
    try:
        of_users = _judge(night, challenger, splits) if splits else None
    except _NotJudged as fault:
        objections.append(str(fault))
    if of_users is not None:
        mean, known_ranks = mean_and_error(of_users[PROMOTION_METRIC]), of_users[KNOWN_RANK]
        found = {"value": mean.value, "standard_error": mean.standard_error, "validation_users": mean.users}
        challenger = replace(challenger, **found)
        if not np.isnan(known_ranks).all():
            objections.append(gates.check_better_than_random(challenger.name, mean_and_error(known_ranks)))
    champion = load_champion(night.home)
    assessment = Assessment(challenger, champion).with_objections(*objections)
    if champion is None:
        return replace(assessment, note="first publication")
    if gates.is_comparable("sizes", assessment.changed):
        sizes = (("edges", challenger.edges, champion.edges), ("users", challenger.users, champion.users))
        found = (gates.check_count(*size, limits.min_size_ratio) for size in sizes)
        assessment = assessment.with_objections(*found)
    if of_users is None:
        return replace(assessment, note="" if splits else "no validation user to compare on")
    return _compare_with_champion(night, assessment, champion, of_users, splits, limits)


def observed_sizes(home: Home) -> dict[str, int]:
    """Return the `edges` and `users` of the observed graph."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        counts = "select count(*) as edges, count(distinct user_index) as users from indexed.interactions"
        return warehouse.query(connection, counts).row(0, named=True)


def _compare_with_champion(
    night: Night,
    assessment: Assessment,
    champion: Candidate,
    of_users: Mapping[str, np.ndarray],
    splits: Sequence[SplitMatrices],
    limits: PublishSettings,
) -> Assessment:
    """Add the comparison to the assessment: paired if the champion's configuration can be fitted in this run."""
    challenger = assessment.challenger
    assert challenger.value is not None
    same = (challenger.name, challenger.settings) == (champion.name, champion.settings)
    before, is_comparable = None, gates.is_comparable("value", assessment.changed)
    if is_comparable and champion.protocol == night.protocol and champion.value is not None:
        before = Mean(champion.value, champion.standard_error, champion.validation_users)
    try:
        of_champion = of_users if same else _judge(night, champion, splits)
        if not same and challenger.model == champion.model and len(splits) > 1:
            # On a fold tonight's blend has weights that other folds chose, but the champion's were chosen by all users.
            of_users = _judge(night, challenger, splits, as_champion=True)
    except _NotJudged as fault:
        if before is None:
            return replace(assessment, note=f"not compared, for {fault}")
        difference = challenger.value - before.value
        error = float(np.hypot(challenger.standard_error or 0.0, before.standard_error or 0.0))
        how = f"against the validation users of the champion's own night, for {fault}"
    else:
        paired = compare_paired(of_users[PROMOTION_METRIC], of_champion[PROMOTION_METRIC], folds=len(splits))
        difference, error = paired.difference, paired.standard_error or 0.0
        how = f"over the same validation users ({paired.users:,}{describe_folds(len(splits))})"
        if before:
            now = mean_and_error(of_champion[PROMOTION_METRIC])
            assessment = assessment.with_objections(gates.check_drop(champion.name, now, before))
    numbers = f"{night.protocol}, {PROMOTION_METRIC} {difference:+.4f} ± {error:.4f} against {champion.name}, {how}"
    assessment = replace(assessment, difference=difference, standard_error=error)
    if same:
        return replace(assessment, note=CHAMPION_NOTE)
    return _judge_difference(night, assessment, champion, limits, numbers)


def _judge_difference(
    night: Night, assessment: Assessment, champion: Candidate, limits: PublishSettings, numbers: str
) -> Assessment:
    """Note the difference to the champion, or object to one that is too far below zero."""
    difference, error = assessment.difference, assessment.standard_error
    assert difference is not None and error is not None
    asked_for = "asked for by publish.model: " if limits.model else ""
    if night.has_fitted(champion.model) and night.has_produced(champion):
        return replace(assessment, note=f"{asked_for}{numbers}, which the run could choose too")
    if difference < -limits.margin * error and not limits.model:
        return assessment.with_objections(
            f"worse by more than publish.margin = {limits.margin:g} standard errors: {numbers}"
        )
    return replace(assessment, note=asked_for + numbers)


def _judge(
    night: Night, candidate: Candidate, splits: Sequence[SplitMatrices], *, as_champion: bool = False
) -> Mapping[str, np.ndarray]:
    """Return a configuration's metrics of the validation users, fitted on the training edges of their split or fold.

    Args:
        as_champion: with its own settings on every fold, also where the run's blend has others.

    Raises:
        _NotJudged: it cannot be fitted, or ranks nothing.
    """
    if night.has_produced(candidate) and not as_champion:
        if not night.has_fitted(candidate.model):
            raise _NotJudged(f"{candidate.model} could not be fitted tonight")
        digests = [of_fold[candidate.model] for _, of_fold in night.judged]
    else:
        logger.info("%s is published and is fitted for the comparison", candidate.name)
        try:
            settings, first = candidate.load_settings(), splits[0]
            if settings.reads_order and first.recency_ranks is None:
                raise ValueError("it reads the order of likes, which tonight's split does not keep")
            if settings.reads_times and first.event_ages is None:
                raise ValueError("it reads the times of events, which tonight's split does not keep")
            digests = [
                load_or_fit(night.home, of, candidate.model, settings, night.seed).digest for of, _ in night.judged
            ]
        except Exception as error:
            if not is_model_error(error):
                raise
            logger.warning("%s: cannot be fitted for the comparison: %s", candidate.name, error)
            raise _NotJudged(f"{candidate.model} with its settings could not be fitted tonight") from error
    ranked = []
    for digest, split in zip(digests, splits, strict=True):
        model, part = fits.load_fit(night.home, candidate.model, digest), split.parts["validation"]
        if not part.targets.nnz:
            continue
        if fault := gates.check_scores(model, candidate.score, part):
            raise _NotJudged(fault)
        try:
            ranked.append(rank_part_targets(model, candidate.score, part))
        except OneclassError as error:
            raise _NotJudged(str(error)) from error
    return TargetRankMetrics.concatenate(ranked).of_users
