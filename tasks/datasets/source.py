"""The section `[source]` of a data set's file: a query from which a run lands new logs."""

import re
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from oneclass.tasks.secrets import accept_former_places, check_reference

LANDED_FILES = "source-*.parquet"
"""The names of the files that a query lands."""
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = re.compile(r"(\d{1,6})([smhd])")


class Source(BaseModel):
    """The SQL query from which a run without `--source` takes new logs before it reads the landing folder."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    query: str = ""
    """Of a database: a `select` with a row for each event. Its columns are found by name, as in a log."""
    url: str = ""
    """Where the database's URL is, which may hold a password: `env:NAME`, an environment variable; `file:PATH`; or
    `block:NAME`, a Secret block on the Prefect server."""
    driver: str = ""
    """The database's ADBC driver: the NAME of a package `adbc_driver_NAME`; by default the URL's scheme."""
    high_water_mark: str = ""
    """A column of the query that grows with every new row and never changes: a serial number, or the time of entry."""
    overlap: str | float = Field(default=0, union_mode="left_to_right")
    """How far below the highest mark the next query begins, for rows that are committed late: such as `2h` or `1d`, or
    a difference of numbers."""
    key: tuple[str, ...] = ()
    """The columns that identify a row, by which one that was taken is known again; by default all."""

    @model_validator(mode="before")
    @classmethod
    def _accept_former_places(cls, values: Any) -> Any:
        return accept_former_places(values, "url")

    @model_validator(mode="after")
    def _names_one_database(self) -> Self:
        if not self.query.strip() or not self.high_water_mark:
            raise ValueError("give `query` and `high_water_mark`, a column of it that grows with every new row")
        try:
            check_reference(self.url)
        except ValueError as error:
            raise ValueError(f"`url` {error}") from None
        if isinstance(self.overlap, str) and not DURATION.fullmatch(self.overlap):
            raise ValueError("write `overlap` as 30m, 2h or 1d, or as a number if the mark is one")
        if isinstance(self.overlap, float) and self.overlap < 0:
            raise ValueError("`overlap` must not be negative")
        return self

    @property
    def overlap_seconds(self) -> int:
        """`overlap` of a mark that is a time."""
        text = self.overlap if isinstance(self.overlap, str) else "0s"
        return int(text[:-1]) * UNIT_SECONDS[text[-1]]
