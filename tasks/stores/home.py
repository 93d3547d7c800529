"""Where everything of one data set lies, and the limits that a run works under."""

import os
from dataclasses import dataclass, field
from pathlib import Path


def root(given: str | Path | None = None) -> Path:
    """The folder that holds every data set's own: `given`, which `--home` is, else `$ONECLASS_HOME`, else `./var`."""
    return Path(given or os.environ.get("ONECLASS_HOME") or "var")


@dataclass(frozen=True)
class Limits:
    """What a run may take of the machine.

    Attributes:
        threads: cores for DuckDB, numba and BLAS.
        memory: DuckDB's memory limit in bytes; past it, DuckDB spills to the home folder.
    """

    threads: int = field(default_factory=lambda: available_cores())
    memory: int = field(default_factory=lambda: max(1 << 30, physical_memory() // 3))


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def physical_memory() -> int:
    """Bytes of memory in this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True)
class Home:
    """`<root>/<dataset>/`, laid out as the README's page on files says."""

    root: Path
    dataset: str
    limits: Limits = field(default_factory=Limits)

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
    def published(self) -> Path:
        return self.folder / "published"

    @property
    def report(self) -> Path:
        return self.folder / "report"

    @property
    def tuning(self) -> Path:
        return self.folder / "tuning"

    @property
    def landing(self) -> Path:
        return self.folder / "landing"

    @property
    def truth(self) -> Path:
        return self.folder / "truth"
