"""The home of a data set: its folders, who may read them, and the resource limits of a run."""

import contextlib
import os
import re
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import resources

PROCESS_BYTES = 400 * 10**6  # approximate memory of a run besides DuckDB's
UMASKS = {"owner": 0o077, "group": 0o027, "everybody": 0}


def resolve_root(given: str | Path | None = None) -> Path:
    """Return the folder of all data sets: `given` (`--home`), else `$ONECLASS_HOME`, else `./var`."""
    return Path(given or os.environ.get("ONECLASS_HOME") or "var")


class FileSettings(BaseModel, frozen=True, extra="forbid"):
    """Who may read what a run writes."""

    readable_by: Literal["owner", "group", "everybody"] = Field(
        default="group",
        description="Who may read what a run writes into the home; never more than the process's own umask lets.",
    )


@dataclass(frozen=True)
class Limits:
    """Resource limits of a run.

    Attributes:
        threads: cores for DuckDB, numba and BLAS.
        memory: DuckDB's memory limit in bytes; above it, DuckDB spills to the home.
        patience: seconds to wait for a warehouse that another program has open.
    """

    threads: int = field(default_factory=resources.available_cores)
    memory: int = field(default_factory=lambda: duckdb_memory(resources.memory_limit()))
    patience: float = 300.0


def duckdb_memory(memory: int) -> int:
    """Return DuckDB's share of this many bytes: a third, at most 3.5 GiB or a seventh; 1 GiB if at most half.

    With 3.5 GiB the split of a log of the Netflix Prize's size takes 5.1 GB in all, with 4 GiB 6.0, in the same time.
    In a small container the share is what the run itself leaves: the system kills a process that exceeds the
    container's limit, while DuckDB at its limit spills to disk. It is at least a quarter, since DuckDB cannot work with
    less.
    """
    share = max(min(memory // 3, 7 << 29), memory // 7, min(1 << 30, memory // 2))
    return min(share, max(memory - PROCESS_BYTES, memory // 4))


def escape_path(path: Path) -> str:
    """Escape the characters of a path that DuckDB's readers take for a pattern, which other files could match.

    Polars' readers take `glob=False`.
    """
    return re.sub(r"([*?\[])", r"[\1]", str(path))


class _Inside:
    """A path in the folder of a data set."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, home: "Home", _: object) -> Path:
        return home.folder / self._name


@dataclass(frozen=True)
class Home:
    """The folder `<root>/<dataset>/`, laid out as in docs/explanation/pipeline.md.

    Raises:
        InputError: DuckDB cannot open a database at this path.
    """

    root: Path
    dataset: str
    limits: Limits = field(default_factory=Limits)
    files: FileSettings = field(default_factory=FileSettings)

    def __post_init__(self) -> None:
        for character in "?\\":
            if character in os.path.realpath(self.folder):
                raise InputError(
                    f"--home {self.root}: its full path has a {character} in it, and DuckDB takes such a path for "
                    "another one. Choose another --home."
                )

    def absolute(self) -> "Home":
        """Return the same home with an absolute path, for a process in another folder."""
        return replace(self, root=self.root.absolute())

    @contextlib.contextmanager
    def writing(self) -> Generator[None]:
        """Restrict who can read the files that this process creates, as `files.readable_by` says."""
        before = os.umask(0o077)  # the umask can be read only by setting it
        os.umask(before | UMASKS[self.files.readable_by])
        try:
            yield
        finally:
            os.umask(before)

    @property
    def folder(self) -> Path:
        return self.root / self.dataset

    warehouse = _Inside("warehouse.duckdb")
    matrices, models, spill = _Inside("matrices"), _Inside("models"), _Inside("spill")
    publications, published, report = _Inside("publications"), _Inside("published"), _Inside("report")
    landing, forgotten, tuning = _Inside("landing"), _Inside("forgotten"), _Inside("tuning")
