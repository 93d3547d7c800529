"""Where everything of one data set lies, who may read it, and the limits that a run works under."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import resources

PROCESS_BYTES = 400 * 10**6  # bytes that a run takes beside what DuckDB does, about
UMASKS = {"owner": 0o077, "group": 0o027, "everybody": 0}


def resolve_root(given: str | Path | None = None) -> Path:
    """The folder that holds every data set's own: `given`, which `--home` is, else `$ONECLASS_HOME`, else `./var`."""
    return Path(given or os.environ.get("ONECLASS_HOME") or "var")


class FileSettings(BaseModel):
    """Who may read what a run writes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    readable_by: Literal["owner", "group", "everybody"] = Field(
        "group",
        description="Who may read what a run writes into the home; never more than the process's own umask lets.",
    )


@dataclass(frozen=True)
class Limits:
    """What a run may take of the machine.

    Attributes:
        threads: cores for DuckDB, numba and BLAS.
        memory: DuckDB's memory limit in bytes; past it, DuckDB spills to the home folder.
        patience: seconds that a warehouse is waited for while another program has it open.
    """

    threads: int = field(default_factory=resources.available_cores)
    memory: int = field(default_factory=lambda: duckdb_memory(resources.memory_limit()))
    patience: float = 300.0


def duckdb_memory(memory: int) -> int:
    """What DuckDB may take of that many bytes: a third, but a gigabyte where that is no more than half.

    In a small container, whatever the run itself does not take: the system kills a process that has more than its
    container, while DuckDB at its limit goes on from the disk. It gets at least a fourth, for with less it cannot work.
    """
    share = max(memory // 3, min(1 << 30, memory // 2))
    return min(share, max(memory - PROCESS_BYTES, memory // 4))


@dataclass(frozen=True)
class Home:
    """`<root>/<dataset>/`, laid out as in docs/explanation/pipeline.md.

    Attributes:
        store: the URL below which workers that do not see the home find its matrices and fits (`tasks.stores.remote`).

    Raises:
        InputError: DuckDB could keep no database there.
    """

    root: Path
    dataset: str
    limits: Limits = field(default_factory=Limits)
    files: FileSettings = field(default_factory=FileSettings)
    store: str | None = None

    def __post_init__(self) -> None:
        for character in "?\\":
            if character in os.path.realpath(self.folder):
                raise InputError(
                    f"--home {self.root}: its full path has a {character} in it, and DuckDB takes such a path for "
                    "another one. Choose another --home."
                )

    def absolute(self) -> "Home":
        """The same for a process that may work in another folder."""
        return replace(self, root=self.root.absolute())

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Files that this process makes meanwhile can be read by nobody but those of `files.readable_by`."""
        before = os.umask(0o077)  # the one that a process has can be seen only by setting another
        os.umask(before | UMASKS[self.files.readable_by])
        try:
            yield
        finally:
            os.umask(before)

    @property
    def folder(self) -> Path:
        return self.root / self.dataset

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse.duckdb"

    @property
    def matrices(self) -> Path:
        return self.folder / "matrices"

    @property
    def models(self) -> Path:
        return self.folder / "models"

    @property
    def publications(self) -> Path:
        return self.folder / "publications"

    @property
    def published(self) -> Path:
        return self.folder / "published"

    @property
    def report(self) -> Path:
        return self.folder / "report"

    @property
    def tuning(self) -> Path:
        return self.folder / "tuning"

    @property
    def spill(self) -> Path:
        return self.folder / "spill"

    @property
    def landing(self) -> Path:
        return self.folder / "landing"

    @property
    def truth(self) -> Path:
        return self.folder / "truth"
