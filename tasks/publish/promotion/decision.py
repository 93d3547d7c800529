"""Champion and challenger, the decision between them, and its row in `operations.promotions`."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import duckdb

from oneclass.models.evaluation.metrics import Mean
from oneclass.models.registry import MODELS
from oneclass.tasks.promotion_log import Decision, record_decision
from oneclass.tasks.protocols import VALIDATION_METRIC
from oneclass.tasks.publish.promotion import gates
from oneclass.tasks.publish.settings import PromotionLimits
from oneclass.tasks.stores import publication_records, publications, warehouse
from oneclass.tasks.stores.home import Home


@dataclass(frozen=True)
class Candidate:
    """A configuration and the data it was fitted on; a publication stores it as plain data.

    Attributes:
        settings: the model's settings as JSON.
        edges, users: size of the observed graph of its recommendations.
        value, standard_error, validation_users: the validation metric of that run; None if it had none.
        protocol: the one of these validation users; None if there were none.
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

    def with_objections(self, *reasons: str | None) -> "Assessment":
        """Return the assessment with more objections to the challenger; None is no objection."""
        return replace(self, refusals=self.refusals + tuple(reason for reason in reasons if reason))


def load_champion(home: Home) -> Candidate | None:
    """Load the published configuration; None if nothing is published, or its configuration is unknown.

    The warehouse's record of the publication is trusted before its manifest. Without both, the last promotion is taken,
    whose number of edges is unknown.
    """
    current = publications.load_current(home)
    with warehouse.open_warehouse(home, read_only=True) as connection:
        recorded = publication_records.load_recorded_facts(connection)
        if not current and not recorded:
            return _load_last_promoted(connection)
    facts = recorded if recorded and current.get("run_id") in (None, recorded["run_id"]) else current
    return Candidate(**facts["recommended"]) if facts.get("recommended") else None


def _load_last_promoted(connection: duckdb.DuckDBPyConnection) -> Candidate | None:
    """Rebuild the last promoted configuration from the records of the run that made it."""
    rows = warehouse.select(connection, "promotion/last_promoted").rows(named=True)
    if not rows:
        return None
    row = rows[0]
    model, _, score = row["challenger"].partition("/")
    made = warehouse.select(
        connection, "promotion/of_model", run_id=row["run_id"], model=model, metric=VALIDATION_METRIC
    )
    run = made.row(0, named=True)
    settings = json.loads(run["settled"] or run["settings"])
    settings = settings if run["settled"] else settings["models"][model]
    summary = run["value"], run["standard_error"], run["users"] or 0, run["protocol"]
    return Candidate(model, score, settings, 0, row["users"], *summary)


def check_recommendations(
    connection: duckdb.DuckDBPyConnection, assessment: Assessment, limits: PromotionLimits
) -> Assessment:
    """Check the challenger's recommendations in the temporary table `ranked`."""
    summary = warehouse.select(connection, "promotion/lists").row(0, named=True)
    return assessment.with_objections(gates.check_lists(assessment.challenger.name, summary, limits))


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
        "; ".join(reason for reason in reasons if reason),
    )
    record_decision(connection, decision)
    return decision
