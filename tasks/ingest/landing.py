"""The landing folder: its settings, its files, and the two folders in it that no run reads.

`landing/quarantine/` holds refused files, each with a note beside it; `landing/done/` ingested files, if
`ingest.keep_files = move`.
"""

import contextlib
import logging
import os
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Literal

import duckdb
from pydantic import BaseModel, Field

from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.ingest.files import FileStillChanging, hash_file
from oneclass.tasks.stores import durable, resources
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import escape_controls

logger = logging.getLogger(__name__)

LANDING, QUARANTINE, DONE = "landing", "quarantine", "done"
NOTE_SUFFIX = ".why.txt"
MAX_NAME_BYTES = 255 - len(NOTE_SUFFIX)


class IngestSettings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What becomes of ingested files of the landing folder, and how recent a night's events must be."""

    keep_files: Literal["keep", "move"] = Field(
        default="keep",
        description="Where a file of the landing folder is once its events are in the warehouse: it stays, or is moved "
        "to `landing/done/`.",
    )
    fresh_within_hours: float | None = Field(
        default=None,
        gt=0,
        description="Raise an alarm for a night whose newest event (or newest file, for a log without times) is older.",
    )


class FileRefused(InputError):
    """A file that is not ingested, why (with file and line), and its outcome in `operations.arrivals`."""

    def __init__(self, location: Path, reason: str, outcome: str = "set aside") -> None:
        super().__init__(location, reason, outcome)
        self.location, self.outcome = location, outcome
        self.shown = escape_controls(str(location))
        self.reason = reason.replace(str(location), self.shown)

    def __str__(self) -> str:
        return self.reason


@contextlib.contextmanager
def refuse_unreadable(location: Path) -> Generator[None]:
    """Turn any error in the block, which scans or parses one file, into the refusal of that file.

    Errors for which the file is not to blame pass: exhausted memory or disk, a stop, and a file that is being written.

    Raises:
        FileRefused: the file is unreadable.
    """
    try:
        yield
    except (FileStillChanging, duckdb.OutOfMemoryException, duckdb.InterruptException, duckdb.FatalException):
        raise
    except Exception as error:
        reason = str(error)
        if not isinstance(error, InputError):
            if isinstance(error, OneclassError) or resources.explain_exhaustion(error, ""):
                raise
            cause = f"{type(error).__name__}: {' '.join(reason.partition('Possible fixes')[0].split())[:300]}"
            advice = "Fetch it again or mend it, write it as CSV or Parquet, or leave it out."
            reason = f"{location}: cannot be read ({cause}). {advice}"
        raise FileRefused(location, reason) from error


def list_landing_files(folder: Path) -> list[Path]:
    """List the files in a folder and below; of a landing folder, without the quarantine and the ingested files.

    Names that begin with `.` or `_` are passed over: other programs call their own files so.
    """
    left_out = {QUARANTINE, DONE} if folder.resolve().name == LANDING else set()
    found = {path: path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file()}
    return sorted(
        path
        for path, parts in found.items()
        if parts[0] not in left_out and not any(part.startswith((".", "_")) for part in parts)
    )


def quarantine_files(home: Home, refused: Iterable[FileRefused]) -> None:
    """Move files of the landing folder to its quarantine, each with a note beside it, and log a warning.

    A file that cannot be moved stays, and the other files are not held up.
    """
    for file in refused:
        reason = file.reason.splitlines()[0]
        text = (
            f"{file.shown} was set aside; no line of it was taken into the warehouse of {home.dataset}.\n\n"
            f"Why: {file.reason}\n\nMend the file or the data set's file, put it back, and remove this note.\n"
        )
        try:
            note = note_of(move_file(home, file.location, QUARANTINE, text))
            logger.warning("%s: set aside; %s says why. %s", file.shown, note, reason)
        except OSError as error:
            logger.warning("%s: not read, and cannot be set aside (%s). %s", file.shown, error.strerror, reason)


def move_file(home: Home, location: Path, folder: str, note: str = "") -> Path:
    """Move a file of the landing folder into `folder` in it, with a note beside it, and return its new path.

    The file keeps its path if that is free, printable, and leaves room for the note's name. Else it gets a folder that
    is named by a digest of its bytes.
    """
    relative, name = location.relative_to(home.landing), escape_controls(location.name)
    target = home.landing / folder / relative
    is_taken = any(map(os.path.lexists, (target, note_of(target)))) or any(map(Path.is_file, target.parents))
    is_odd = len(os.fsencode(name)) > MAX_NAME_BYTES or escape_controls(str(relative)) != str(relative)
    if is_taken or is_odd:
        short = f"{Path(name).stem[:40]}{Path(name).suffix[:8]}"
        target = home.landing / folder / hash_file(location)[:16] / short
    durable.make_folder(target.parent)
    if note:
        note_of(target).write_text(note, encoding="utf-8")
        durable.sync_path(note_of(target))
    durable.install_file(location, target)
    return target


def note_of(path: Path) -> Path:
    """Return the path of the note beside a file in quarantine."""
    return path.with_name(path.name + NOTE_SUFFIX)
