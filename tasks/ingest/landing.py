"""The landing folder: list its files, and quarantine, archive or remove them.

`landing/quarantine/` holds rejected files, each with a note beside it; `landing/done/` ingested files, if
`ingest.keep_files = move`. Neither is read as input.
"""

import contextlib
import filecmp
import hashlib
import logging
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path

import duckdb

from oneclass.tasks import memory_errors
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.ingest.scan import FileSignature, FileStillChanging
from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import escape_controls

logger = logging.getLogger(__name__)

LANDING, QUARANTINE, DONE = "landing", "quarantine", "done"
NOTE_SUFFIX = ".why.txt"
MAX_NAME_BYTES = 255 - len(NOTE_SUFFIX) - len(".9999")  # leaves room for a number and the note's name
MAX_SUFFIX_BYTES = 32


class FileRefused(InputError):
    """A file that is not ingested: its location, and the reason with file and line."""

    def __init__(self, location: Path, reason: str) -> None:
        super().__init__(location, reason)
        self.location, self.reason = location, reason

    def __str__(self) -> str:
        return self.reason

    @property
    def shown(self) -> str:
        """The location as one line of UTF-8 text."""
        return escape_controls(str(self.location))

    @property
    def shown_reason(self) -> str:
        """The reason, with the location as `shown`."""
        return self.reason.replace(str(self.location), self.shown)


RejectedFile = FileRefused


@contextlib.contextmanager
def refuse_unreadable(location: Path) -> Generator[None]:
    """Turn any error in the block, which scans or parses one file, into the refusal of that file.

    Errors for which the file is not to blame pass: exhausted memory or disk, a stop, and a file that is being written.

    Raises:
        FileRefused: the file is unreadable.
    """
    try:
        yield
    except (FileRefused, FileStillChanging):
        raise
    except InputError as error:
        raise FileRefused(location, str(error)) from error
    except (OneclassError, MemoryError, duckdb.OutOfMemoryException, duckdb.InterruptException, duckdb.FatalException):
        raise
    except Exception as error:
        if memory_errors.explain_exhaustion(error, str(location)):
            raise
        cause = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        advice = "Mend it, write it as CSV or Parquet, or leave it out."
        raise FileRefused(location, f"{location}: cannot be read ({cause}). {advice}") from error


def list_landing_files(folder: Path) -> list[Path]:
    """List the files in a folder and below, except hidden ones; in a landing folder only the input files."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    if folder.resolve().name != LANDING:
        return found
    return [path for path in found if path.relative_to(folder).parts[0] not in (QUARANTINE, DONE)]


def list_quarantined(folder: Path) -> list[Path]:
    """List the files that earlier runs set aside in a landing folder, without their notes."""
    found = sorted((folder / QUARANTINE).rglob("*"))
    return [
        path
        for path in found
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(NOTE_SUFFIX)
    ]


def quarantine_files(home: Home, rejected: Iterable[RejectedFile]) -> None:
    """Move files of the landing folder to its quarantine, each with a note beside it, and log a warning.

    A file that cannot be moved stays, and the other files are not held up.
    """
    for file in rejected:
        reason = file.shown_reason.splitlines()[0]
        try:
            note = _move_with_note(home, file)
        except OSError as error:
            logger.warning("%s: not read, and cannot be set aside (%s). %s", file.shown, error.strerror, reason)
        else:
            logger.warning("%s: set aside; %s says why. %s", file.shown, note, reason)


def _move_with_note(home: Home, file: RejectedFile) -> Path:
    """Move a file to the quarantine and return its note."""
    target = _target_path(home, QUARANTINE, file.location)
    note = target.with_name(target.name + NOTE_SUFFIX)
    try:
        note.write_text(_write_note(home, file), encoding="utf-8")
        durable.sync_path(note)
        durable.install_file(file.location, target)
    except OSError:
        note.unlink(missing_ok=True)
        raise
    return note


def archive_files(home: Home, ingested: Mapping[Path, FileSignature], keep_files: str) -> None:
    """Keep, move or remove ingested files of the landing folder.

    Args:
        ingested: their locations, with their signatures when they were read; a file that changed since is left to the
            next run.
        keep_files: the setting `ingest.keep_files`.
    """
    locations = [location for location, signature in ingested.items() if signature.matches(location)]
    if keep_files == "keep" or not locations:
        return
    for location in locations:
        if keep_files == "move":
            durable.install_file(location, _target_path(home, DONE, location))
        else:
            location.unlink()
    done = f"moved to {home.landing / DONE}" if keep_files == "move" else "removed"
    more = f" and {len(locations) - 1:,} more" if len(locations) > 1 else ""
    logger.info("%s%s: %s, now that the warehouse holds them", locations[0], more, done)


def _target_path(home: Home, folder: str, location: Path) -> Path:
    """Return the target of a file inside `folder`: its safe name, numbered if another file or folder has it."""
    *parents, name = location.relative_to(home.landing).parts
    parent = home.landing / folder
    for part in parents:
        parent = next(path for path in _iterate_numbered(parent / _safe_name(part)) if path.is_dir() or _is_free(path))
    durable.make_folder(parent)
    return next(
        path
        for path in _iterate_numbered(parent / _safe_name(name))
        if _is_free(path) or (path.is_file() and filecmp.cmp(path, location, shallow=False))
    )


def _is_free(path: Path) -> bool:
    """Whether neither a file nor its note would take the place of another one."""
    return not path.exists() and not path.with_name(path.name + NOTE_SUFFIX).exists()


def _safe_name(name: str) -> str:
    """Return a name without control characters and foreign bytes, with room for a note's name; mostly the name itself.

    Another name has a digest of the original in it, so that different files keep different names.
    """
    shown = escape_controls(name).encode()
    if shown == name.encode(errors="surrogateescape") and len(shown) <= MAX_NAME_BYTES:
        return name
    suffix = Path(shown.decode()).suffix.encode()[:MAX_SUFFIX_BYTES]
    end = b"~" + hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:8].encode() + suffix
    return (shown[: MAX_NAME_BYTES - len(end)].removesuffix(suffix) + end).decode(errors="ignore")


def _iterate_numbered(path: Path) -> Iterator[Path]:
    yield path
    number = 2
    while True:
        yield path.with_name(f"{path.name}.{number}")
        number += 1


def _write_note(home: Home, rejected: RejectedFile) -> str:
    name = escape_controls(str(rejected.location.relative_to(home.landing)))
    return (
        f"{name} was set aside on the way into the warehouse of {home.dataset}; no line of it was taken in.\n\n"
        f"Why: {rejected.shown_reason}\n\n"
        f"What to do: mend the file, or the data set's file where that is wrong, and put it back at "
        f"{rejected.shown}; the next run reads it. Then remove this note. Other files were not held up.\n"
    )
