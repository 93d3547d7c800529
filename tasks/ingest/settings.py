"""The settings of the stage `ingest`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class IngestSettings(BaseModel):
    """How to handle changed logs and ingested landing files, and how recent a night's events must be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    changed_file: Literal["replace", "add"] = Field(
        default="replace",
        description="A log with the name of one that was read in before, but with other bytes: its events replace the "
        "earlier ones, or are added to them.",
    )
    keep_files: Literal["keep", "move", "remove"] = Field(
        default="keep",
        description="What becomes of a file of the landing folder once its events are in the warehouse: it stays, it "
        "is moved to `landing/done/`, or it is removed.",
    )
    fresh_within_hours: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Raise an alarm for a night whose newest event (or newest file, for a log without times) is older.",
    )
