"""Where the settings of a run's models come from, as `operations.model_settings` has it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from models.settings import ModelSettings
from tasks.stores import warehouse
from tasks.stores.home import Home


@dataclass(frozen=True)
class Settled:
    """Where a model's settings come from: a row of `operations.model_settings`, without the run.

    Attributes:
        settings: what every fit of the run has.
        searched: the columns of a search; none where none was made or kept.
    """

    model: str
    origin: Literal["search", "kept", "data set", "given", "default"]
    reason: str
    settings: ModelSettings
    searched: dict[str, Any] | None = None

    @property
    def row(self) -> dict[str, Any]:
        """The columns and their values."""
        said = {"model": self.model, "origin": self.origin, "reason": self.reason}
        return {**said, **(self.searched or {}), "settings": self.settings.model_dump_json()}


def record(home: Home, run_id: str, found: Sequence[Settled]) -> None:
    """Write the rows of these models for a run; the contract of the stage `tune` closes it."""
    rows = pl.DataFrame([{"run_id": run_id, **one.row} for one in found], infer_schema_length=None)
    with warehouse.stage(home, run_id, "tune") as connection:
        names = [one.model for one in found]
        connection.execute("delete from operations.model_settings where run_id = ? and model in ?", [run_id, names])
        warehouse.insert(connection, "operations.model_settings", rows)
