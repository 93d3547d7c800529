"""What is known of champion and challenger, the decision between them, and its row in `operations.promotions`."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import duckdb

from models.evaluation.metrics import Mean
from tasks.decisions import Decision, note
from tasks.promotion import gates
from tasks.promotion.limits import PromotionLimits
from tasks.protocols import VALIDATION_METRIC
from tasks.stores import publications, warehouse
from tasks.stores.home import Home


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
    def on_validation(self) -> Mean | None:
        """The metric on validation."""
        return None if self.value is None else Mean(self.value, self.standard_error, self.validation_users)

    def is_as(self, other: "Candidate") -> bool:
        """Whether both are one configuration: model, score and settings."""
        return (self.model, self.score, self.settings) == (other.model, other.score, other.settings)


@dataclass(frozen=True)
class Judgement:
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
    by_hand: bool = False

    @property
    def stays(self) -> bool:
        """Whether the champion stays. There must be one: on the first night there is nothing to fall back on."""
        return bool(self.refusals) and self.champion is not None and not self.by_hand

    def against(self, *reasons: str | None) -> "Judgement":
        """The same with more reasons against the challenger; a None among them is not a reason."""
        return replace(self, refusals=self.refusals + tuple(reason for reason in reasons if reason))


def standing(home: Home) -> Candidate | None:
    """What the standing recommendations were made of; None where there are none, or nobody knows."""
    made_of = publications.standing(home).get("recommended")
    return Candidate(**made_of) if made_of else None


def with_lists(connection: duckdb.DuckDBPyConnection, judgement: Judgement, limits: PromotionLimits) -> Judgement:
    """The judgement after a look at the challenger's recommendations, which the temporary table `ranked` has."""
    found = warehouse.select(connection, "promotion/lists").row(0, named=True)
    return judgement.against(gates.lists(judgement.challenger.name, found, limits))


def decide(connection: duckdb.DuckDBPyConnection, run_id: str, judgement: Judgement) -> Decision:
    """Decide, and write the row of this run, in place of one that an earlier try wrote."""
    promoted = not judgement.stays
    reasons = [*judgement.refusals, judgement.note] if not promoted else [judgement.note, *judgement.refusals]
    decision = Decision(
        run_id,
        datetime.now(UTC).replace(tzinfo=None),
        judgement.champion.name if judgement.champion else None,
        judgement.challenger.name,
        None if judgement.difference is None else VALIDATION_METRIC,
        judgement.difference,
        judgement.standard_error,
        judgement.margin,
        promoted,
        "; ".join(reason for reason in reasons if reason),
    )
    note(connection, decision)
    return decision
