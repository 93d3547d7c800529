"""The section `[source]` of a data set's file: a query from which a run lands new logs."""

import re
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

LANDED_FILES = "source-*.parquet"
"""The names of the files that a query lands."""
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = re.compile(r"(\d{1,6})([smhd])")


class Source(BaseModel):
    """The SQL query from which a run without `--source` takes new logs before it reads the landing folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str = ""
    """Of a database: a `select` with a row for each event. Its columns are found by name, as in a log."""
    url_env: str = ""
    """The environment variable with the database's URL, as the URL may hold a password."""
    url_file: str = ""
    """Or the file with it."""
    url_block: str = ""
    """Or the Secret block on the Prefect server with it."""
    driver: str = ""
    """The database's ADBC driver: the NAME of a package `adbc_driver_NAME`; by default the URL's scheme."""
    high_water_mark: str = ""
    """A column of the query that grows with every new row and never changes: a serial number, or the time of entry."""
    overlap: str | float = Field(default=0, union_mode="left_to_right")
    """How far below the highest mark the next query begins, for rows that are committed late: such as `2h` or `1d`, or
    a difference of numbers."""
    key: tuple[str, ...] = ()
    """The columns that identify a row, by which one that was taken is known again; by default all."""

    @model_validator(mode="after")
    def _names_one_database(self) -> Self:
        if not self.query.strip() or not self.high_water_mark:
            raise ValueError("give `query` and `high_water_mark`, a column of it that grows with every new row")
        places = [place for place in (self.url_env, self.url_file, self.url_block) if place]
        if len(places) != 1:
            raise ValueError(
                "name the environment variable with the database's URL as `url_env`, or the file with it as "
                "`url_file`, or the Prefect Secret block with it as `url_block`"
            )
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
