"""The landing folder: list its files, and quarantine, archive or remove them.

`landing/quarantine/` holds rejected files, each with a note beside it; `landing/done/` ingested files, if
`ingest.keep_files = move`. Neither is read as input.
"""

import filecmp
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from oneclass.tasks.ingest.scan import FileSignature
from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

LANDING, QUARANTINE, DONE = "landing", "quarantine", "done"
NOTE_SUFFIX = ".why.txt"


@dataclass(frozen=True)
class RejectedFile:
    """A file of the landing folder that is not ingested, and the reason with file and line."""

    location: Path
    reason: str


def list_landing_files(folder: Path) -> list[Path]:
    """List the files in a folder and below, except hidden ones; in a landing folder only the input files."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    if folder.resolve().name != LANDING:
        return found
    return [path for path in found if path.relative_to(folder).parts[0] not in (QUARANTINE, DONE)]


def quarantine_files(home: Home, rejected: Iterable[RejectedFile]) -> None:
    """Move files of the landing folder to its quarantine, each with a note beside it, and log a warning."""
    for file in rejected:
        target = _target_path(home, QUARANTINE, file.location)
        note = target.with_name(target.name + NOTE_SUFFIX)
        note.write_text(_write_note(home, file), encoding="utf-8")
        durable.sync_path(note)
        durable.install_file(file.location, target)
        logger.warning("%s: set aside; %s says why. %s", file.location, note, file.reason.splitlines()[0])


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
    """Return the target of a file inside `folder`: its own name, numbered if another file has it."""
    wanted = home.landing / folder / location.relative_to(home.landing)
    durable.make_folder(wanted.parent)
    return next(
        path for path in _unused_path(wanted) if not path.exists() or filecmp.cmp(path, location, shallow=False)
    )


def _unused_path(path: Path) -> Iterator[Path]:
    yield path
    number = 2
    while True:
        yield path.with_name(f"{path.name}.{number}")
        number += 1


def _write_note(home: Home, rejected: RejectedFile) -> str:
    name = rejected.location.relative_to(home.landing)
    return (
        f"{name} was set aside on the way into the warehouse of {home.dataset}; no line of it was taken in.\n\n"
        f"Why: {rejected.reason}\n\n"
        f"What to do: mend the file, or the data set's file where that is wrong, and put it back at "
        f"{rejected.location}; the next run reads it. Then remove this note. Other files were not held up.\n"
    )
