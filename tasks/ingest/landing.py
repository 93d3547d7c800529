"""The landing folder: list its files, and quarantine, archive or remove them.

`landing/quarantine/` holds refused files, each with a note beside it; `landing/done/` ingested files, if
`ingest.keep_files = move`. Neither is read as input.
"""

import contextlib
import filecmp
import hashlib
import itertools
import logging
import os
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

import duckdb

from oneclass.tasks import memory_errors
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.ingest.files import FileStillChanging, sign_file
from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import escape_controls

logger = logging.getLogger(__name__)

LANDING, QUARANTINE, DONE = "landing", "quarantine", "done"
NOTE_SUFFIX = ".why.txt"
MAX_NAME_BYTES = 255 - len(NOTE_SUFFIX)


class FileRefused(InputError):
    """A file that is not ingested, why (with file and line), and its outcome in `operations.arrivals`."""

    def __init__(self, location: Path, reason: str, outcome: str = "set aside") -> None:
        super().__init__(location, reason, outcome)
        self.location, self.outcome = location, outcome
        self.shown = escape_controls(str(location))
        self.reason = reason.replace(str(location), self.shown)

    def __str__(self) -> str:
        return self.reason


RejectedFile = FileRefused
NOT_OF_THE_FILE = (MemoryError, duckdb.OutOfMemoryException, duckdb.InterruptException, duckdb.FatalException)


@contextlib.contextmanager
def refuse_unreadable(location: Path) -> Generator[None]:
    """Turn any error in the block, which scans or parses one file, into the refusal of that file.

    Errors for which the file is not to blame pass: exhausted memory or disk, a stop, and a file that is being written.

    Raises:
        FileRefused: the file is unreadable.
    """
    try:
        yield
    except (FileStillChanging, *NOT_OF_THE_FILE):
        raise
    except InputError as error:
        raise FileRefused(location, str(error)) from error
    except Exception as error:
        if isinstance(error, OneclassError) or memory_errors.explain_exhaustion(error, str(location)):
            raise
        cause = f"{type(error).__name__}: {' '.join(str(error).partition('Possible fixes')[0].split())[:300]}"
        advice = "Fetch it again or mend it, write it as CSV or Parquet, or leave it out."
        raise FileRefused(location, f"{location}: cannot be read ({cause}). {advice}") from error


def list_landing_files(folder: Path) -> list[Path]:
    """List the files in a folder and below; of a landing folder, without the quarantine and the ingested files.

    Names that begin with `.` or `_` are passed over: other programs call their own files so.
    """
    left_out = (QUARANTINE, DONE) if folder.resolve().name == LANDING else ()

    def is_input(parts: tuple[str, ...]) -> bool:
        return parts[0] not in left_out and not any(part.startswith((".", "_")) for part in parts)

    return sorted(path for path in folder.rglob("*") if is_input(path.relative_to(folder).parts) and path.is_file())


def list_quarantined(folder: Path) -> list[Path]:
    """List the files that earlier runs set aside in a landing folder, without their notes."""
    return [path for path in list_landing_files(folder / QUARANTINE) if not path.name.endswith(NOTE_SUFFIX)]


def quarantine_files(home: Home, refused: Iterable[FileRefused]) -> None:
    """Move files of the landing folder to its quarantine, each with a note beside it, and log a warning.

    A file that cannot be moved stays, and the other files are not held up.
    """
    for file in refused:
        reason, note = file.reason.splitlines()[0], None
        try:
            target = _find_target(home, QUARANTINE, file.location)
            note = _note_of(target)
            note.write_text(
                f"{file.shown} was set aside; no line of it was taken into the warehouse of {home.dataset}.\n\n"
                f"Why: {file.reason}\n\nMend the file, or the data set's file where that is wrong, put it back at the "
                "path above, and remove this note; the next run reads it. Other files were not held up.\n",
                encoding="utf-8",
            )
            durable.sync_path(note)
            durable.install_file(file.location, target)
        except OSError as error:
            if note:
                note.unlink(missing_ok=True)
            logger.warning("%s: not read, and cannot be set aside (%s). %s", file.shown, error.strerror, reason)
        else:
            logger.warning("%s: set aside; %s says why. %s", file.shown, note, reason)


def archive_files(home: Home, ingested: Mapping[Path, tuple[int, ...]], keep_files: str) -> None:
    """Keep, move or remove ingested files of the landing folder.

    Args:
        ingested: their locations, with their signatures when they were read; a file that changed since is left to the
            next run.
        keep_files: the setting `ingest.keep_files`.
    """
    unchanged = [location for location, signature in ingested.items() if sign_file(location) == signature]
    for location in unchanged if keep_files != "keep" else ():
        if keep_files == "move":
            durable.install_file(location, _find_target(home, DONE, location))
        else:
            location.unlink()
        logger.info("%s: %sd, now that the warehouse holds its events", location, keep_files)


def _find_target(home: Home, folder: str, location: Path) -> Path:
    """Return the path that a file gets in `folder`, or in a numbered folder inside if another file has that path."""
    durable.make_folder(home.landing / folder)
    parts = [_make_safe(part) for part in location.relative_to(home.landing).parts]
    for number in itertools.count(1):
        target = Path(home.landing, folder, *([str(number)] if number > 1 else []), *parts)
        is_same = target.is_file() and filecmp.cmp(target, location, shallow=False)
        is_free = not target.exists() and not _note_of(target).exists()
        if is_same or (is_free and not any(parent.is_file() for parent in target.parents)):
            durable.make_folder(target.parent)
            return target


def _note_of(path: Path) -> Path:
    return path.with_name(path.name + NOTE_SUFFIX)


def _make_safe(name: str) -> str:
    """Return a name that leaves room for a note's and is all printable: mostly itself, else one with a digest of it."""
    shown = escape_controls(name)
    if shown == name and len(os.fsencode(name)) <= MAX_NAME_BYTES:
        return name
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    return f"{Path(shown).stem[:40]}~{digest}{Path(shown).suffix[:8]}"
