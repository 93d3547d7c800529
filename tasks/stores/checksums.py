"""The record of a stored folder: written last, with the sha256 of every file beside it and of itself.

What is read is checked against the record first, each file once in a process for as long as its inode, size and time
stay the same. That reads a file once from its beginning to its end, at 1 to 2 GB a second.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oneclass.tasks.errors import OneclassError

logger = logging.getLogger(__name__)

_hash_cache: dict[tuple[int, int], tuple[int, int, str]] = {}
"""(device, inode) of a file -> the file's size and time, and the digest, when this process last hashed it."""
CHUNK_BYTES = 1 << 20  # bytes that are read and hashed at once


class DamagedFile(OneclassError):
    """A stored file is not what was written."""


def write_manifest(folder: Path, name: str, facts: dict[str, Any]) -> None:
    """Write the record `name` of a folder whose other files are complete.

    Args:
        facts: plain data to keep with it, for `facts` to give back.
    """
    digests = {file: _hash_range(folder / file) for file in _list_files(folder) if file != name}
    (folder / name).write_text(_format_record(facts, digests), encoding="utf-8")


def load_facts(folder: Path, name: str) -> dict[str, Any]:
    """The facts in a folder's record; the record alone is checked, for it is small.

    Raises:
        Damaged: the record is absent, of an earlier version of this program, or not what was written.
    """
    return _read_record(folder, name)[0]


def find_facts(folder: Path, name: str) -> dict[str, Any]:
    """As `facts`; empty where the record is absent or damaged."""
    try:
        return load_facts(folder, name)
    except DamagedFile:
        return {}


def load_file_hashes(folder: Path, name: str) -> dict[str, str]:
    """The sha256 of each file by its place in the folder, as the record has them.

    Raises:
        Damaged: as of `facts`.
    """
    return _read_record(folder, name)[1]


def load_checked_facts(folder: Path, name: str, wanted: Callable[[str], bool] = lambda file: True) -> dict[str, Any]:
    """The facts in a folder's record, after its files were checked.

    Args:
        wanted: tells by a file's place in the folder whether its bytes are read; of the others it is seen that they are there.

    Raises:
        Damaged: the record or a file is absent, cannot be read, or is not what was written; or there is one too many.
    """
    found, digests = _read_record(folder, name)
    try:
        there = set(_list_files(folder)) - {name}
        if differing := sorted(there ^ digests.keys()):
            one = differing[0]
            raise DamagedFile(f"{folder / one}: {'is missing' if one in digests else 'does not belong there'}")
        for file in filter(wanted, digests):
            if _hash_range(folder / file) != digests[file]:
                raise DamagedFile(f"{folder / file}: is damaged, for its sha256 is not the one that was noted")
    except OSError as error:
        raise DamagedFile(f"{error.filename or folder}: cannot be read ({error.strerror or error})") from error
    return found


def verify_folder(folder: Path, name: str, otherwise: str = "") -> bool:
    """Whether a folder is there and is what was written; where it is there and is not, that is said.

    Args:
        otherwise: what is said behind it.
    """
    if not os.path.lexists(folder):
        return False
    try:
        load_checked_facts(folder, name)
    except DamagedFile as error:
        logger.warning("%s%s", error, otherwise)
        return False
    return True


def remove_path(path: Path) -> None:
    """Delete a folder, or whatever stands in its place, if anything does."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _list_files(folder: Path) -> list[str]:
    """What lies in a folder and in the folders within it, by its place in it, such as `model/items.parquet`."""
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _read_record(folder: Path, name: str) -> tuple[dict[str, Any], dict[str, str]]:
    path = folder / name
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DamagedFile(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise DamagedFile(f"{path}: is damaged, for it is not text") from error
    return parse_record(text, str(path))


def parse_record(text: str, where: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The facts and the files' sha256 of a record's text.

    Raises:
        Damaged: it is not what was written.
    """
    try:
        record = json.loads(text)
        found, digests = record["facts"], record["files"]
        whole = text == _format_record(found, digests) and all(map(_is_inside, digests))
    except (ValueError, TypeError, KeyError):
        whole = False
    if not whole:
        raise DamagedFile(f"{where}: is damaged, or of an earlier version of this program")
    return found, digests


def _is_inside(file: str) -> bool:
    """Whether a file's place is in the folder: who fetches a folder by its record writes nowhere else."""
    return not file.startswith("/") and ".." not in file.split("/")


def _format_record(facts: dict[str, Any], digests: dict[str, str]) -> str:
    body = {"facts": facts, "files": digests}
    own = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return json.dumps({**body, "sha256": own}, indent=1, sort_keys=True) + "\n"


def _hash_range(file: Path) -> str:
    with file.open("rb", buffering=0) as stream:
        status = os.fstat(stream.fileno())
        stamp, place = (status.st_size, status.st_mtime_ns), (status.st_dev, status.st_ino)
        known = _hash_cache.get(place)
        if known and known[:2] == stamp:
            return known[2]
        digest = hashlib.sha256()
        while read := stream.read(CHUNK_BYTES):
            digest.update(read)
    _hash_cache[place] = *stamp, digest.hexdigest()
    return digest.hexdigest()
