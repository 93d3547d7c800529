"""The section `[source]` of a data set's file: the query that gives a run without `--source` its new logs."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from oneclass.tasks.secrets import check_reference

LANDED_FILES = ("source.parquet", "source-*.parquet")
"""The names of the files that a query lands: its whole result, or the rows that are new in a run."""
LANDED = re.compile(r"source(?:-(\d{6,}))?\.parquet")
"""The same, with the number of new rows' file."""


class Source(BaseModel):
    """A SQL query, which DuckDB runs, or the database of `url`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, str_strip_whitespace=True)

    query: str = Field(min_length=1)
    """A `select` with a row for each event, whose columns are found by name, as in a log. `{since}` stands for the
    newest time that was read."""
    url: Annotated[str, AfterValidator(check_reference)] = ""
    """Where the database's URL is, which may hold a password: `env:NAME`, an environment variable; `file:PATH`; or
    `block:NAME`, a Secret block on the Prefect server."""
    file: str = ""
    """The data set's file, where relative paths in the query begin. Reading that file sets it."""

    @property
    def is_incremental(self) -> bool:
        """Whether the query asks for new rows only."""
        return "{since}" in self.query
