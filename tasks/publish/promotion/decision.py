"""What is known of champion and challenger, the decision between them, and its row in `operations.promotions`."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import duckdb

from oneclass.models.evaluation.metrics import Mean
from oneclass.tasks.promotion_log import Decision, record_decision
from oneclass.tasks.protocols import VALIDATION_METRIC
from oneclass.tasks.publish.promotion import gates
from oneclass.tasks.publish.settings import PromotionLimits
from oneclass.tasks.stores import publications, warehouse
from oneclass.tasks.stores.home import Home


@dataclass(frozen=True)
class Candidate:
    """A configuration, and what it was made of: what a publication keeps of its model, as plain data.

    Attributes:
        settings: the model's, as JSON has them.
        edges, users: of the observed graph that its recommendations are of.
        value, standard_error, validation_users: the metric on validation of that night; None where there was none.
    """

    model: str
    score: str
    settings: dict[str, Any]
    edges: int
    users: int
    value: float | None = None
    standard_error: float | None = None
    validation_users: int = 0

    @property
    def name(self) -> str:
        """Model and score, such as `mrf_dense/score`."""
        return f"{self.model}/{self.score}"

    @property
    def validation_summary(self) -> Mean | None:
        """The metric on validation."""
        return None if self.value is None else Mean(self.value, self.standard_error, self.validation_users)

    def has_same_configuration(self, other: "Candidate") -> bool:
        """Whether both are one configuration: model, score and settings."""
        return (self.model, self.score, self.settings) == (other.model, other.score, other.settings)


@dataclass(frozen=True)
class Assessment:
    """What speaks for and against the challenger before its lists have been made.

    Attributes:
        champion: what stands; None where nothing does, or it does not say what made it.
        difference, standard_error: of the metric on validation, challenger minus champion; None where not compared.
        refusals: why the champion stays; empty where nothing speaks against the challenger.
        note: what speaks for it, or how they were compared.
        by_hand: somebody asked for the challenger: it stands whatever the gates say.
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
    def stays(self) -> bool:
        """Whether the champion stays. There must be one: on the first night there is nothing to fall back on."""
        return bool(self.refusals) and self.champion is not None and not self.manual

    def against(self, *reasons: str | None) -> "Assessment":
        """The same with more reasons against the challenger; a None among them is not a reason."""
        return replace(self, refusals=self.refusals + tuple(reason for reason in reasons if reason))


def load_champion(home: Home) -> Candidate | None:
    """What the standing recommendations were made of; None where there are none, or nobody knows."""
    made_of = publications.load_current(home).get("recommended")
    return Candidate(**made_of) if made_of else None


def check_recommendations(
    connection: duckdb.DuckDBPyConnection, assessment: Assessment, limits: PromotionLimits
) -> Assessment:
    """The judgement after a look at the challenger's recommendations, which the temporary table `ranked` has."""
    found = warehouse.select(connection, "promotion/lists").row(0, named=True)
    return assessment.against(gates.check_lists(assessment.challenger.name, found, limits))


def record_promotion(connection: duckdb.DuckDBPyConnection, run_id: str, assessment: Assessment) -> Decision:
    """Decide, and write the row of this run, in place of one that an earlier try wrote."""
    promoted = not assessment.stays
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
