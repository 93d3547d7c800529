"""The settings of the stage `evaluate`."""

from pydantic import BaseModel, ConfigDict, Field

from oneclass.tasks.evaluate.strata import MAX_TEXTS


class EvaluateSettings(BaseModel):
    """What the tables of an evaluation have beside every run's metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attributes: tuple[str, ...] | None = Field(
        None,
        description="Columns of the attributes of users that evaluation.strata divides users by, by default the "
        f"features that are numbers or have at most {MAX_TEXTS} texts. [] for none.",
    )
