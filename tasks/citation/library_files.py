"""Read the files in which benchmarks.libraries writes other libraries' rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from oneclass.tasks.errors import InputError

OWN_ORIGIN = "oneclass "  # of rows of this program's models, which the run has itself


class LibraryRow(BaseModel):
    """A model: how it was tuned and fitted, and its metrics.

    Attributes:
        origin: `oneclass` or the library, with its version.
        title: what the model is.
        score: the model's score that is best on validation users.
        validation: the protocol's metric there.
        trials: the number of trials made.
        search_seconds, fit_seconds: of processor time, all threads together.
        of_trials: of each trial its `number`, `state`, `value`, `standard_error`, `score`, processor `seconds`, the
            `settings` of its fit and, if it failed, why (`note`).
        of_users: by metric, the values of the test users that have a target.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    origin: str
    title: str
    space: dict[str, str]
    settings: dict[str, Any]
    score: str
    validation: float
    trials: int
    search_seconds: float
    fit_seconds: float
    of_trials: list[dict[str, Any]]
    of_users: dict[str, list[float]]


class LibraryTable(BaseModel):
    """The rows of one log and protocol, with the split and the budget that they have in common."""

    model_config = ConfigDict(frozen=True)

    log: str
    protocol: str
    splits: list[str]
    test_users: int = Field(alias="test users")
    trial_edges: int
    metric: str
    trials: int
    seconds: float
    seed: int
    threads: int
    machine: dict[str, Any]
    rows: list[LibraryRow]

    @property
    def library_rows(self) -> list[LibraryRow]:
        """The rows of libraries, without those of this program's models."""
        return [row for row in self.rows if not row.origin.startswith(OWN_ORIGIN)]

    def describe_row(self, row: LibraryRow) -> dict[str, Any]:
        """Describe a row by the keys of a run's own models in `rows.json`, with its library and machine."""
        return {
            "model": row.name,
            "title": row.title,
            "library": row.origin,
            "seed": self.seed,
            "settings": row.settings,
            "search": {
                "origin": "search",
                "protocol": self.protocol,
                "metric": self.metric,
                "trials": row.trials,
                "seconds": row.search_seconds,
                "at_start": row.of_trials[0]["value"] if row.of_trials else None,
                "reached": row.validation,
                "space": row.space,
            },
            "fits": [{"protocol": self.protocol, "cpu_seconds": row.fit_seconds, "machine": self.machine}],
        }


@dataclass(frozen=True)
class LibraryFile:
    """A file of rows, its text and its content."""

    path: Path
    text: str
    table: LibraryTable

    @property
    def name_in_citation(self) -> str:
        """The name of its copy in the folder that cites it."""
        return f"libraries_{self.table.protocol}.json"


def load_library_file(path: Path) -> LibraryFile:
    """Load a file that the benchmark wrote.

    Raises:
        InputError: it cannot be read or has another form.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = LibraryTable.model_validate_json(text)
    except OSError as error:
        raise InputError(f"--libraries {path}: cannot be read ({error.strerror}).") from error
    except (ValidationError, UnicodeDecodeError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
        where = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(
            f"--libraries {path}: is not a file of benchmarks.accuracy.libraries of this version ({where}: "
            f"{first['msg']}). Write it again, into another --out."
        ) from error
    return LibraryFile(path, text, table)
