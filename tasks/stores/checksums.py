"""Manifests of stored folders: each is written last, with the sha256 of every other file and of itself.

A folder is verified against its manifest before it is read, each file once per process while its inode, size and time
stay the same. Hashing reads 1 to 2 GB a second.
"""

import contextlib
import functools
import hashlib
import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Generator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from oneclass.tasks.errors import OneclassError
from oneclass.tasks.stores import durable

logger = logging.getLogger(__name__)

_hash_cache: dict[tuple[int, int], tuple[int, int, str]] = {}
"""(device, inode) of a file -> the file's size and time, and the digest, when this process last hashed it."""


class DamagedFile(OneclassError):
    """A stored file differs from what was written."""


@contextlib.contextmanager
def write_folder(target: Path, name: str) -> Generator[tuple[Path, dict[str, Any]]]:
    """Write a folder next to `target`, and move it there with its manifest `name` when the block ends without an error.

    Yields:
        The folder to write files to, and the dict to put the facts of its manifest into.
    """
    partial = target.with_name(f"partial-{uuid.uuid4().hex}")
    durable.make_folder(partial)
    facts: dict[str, Any] = {}
    try:
        yield partial, facts
        (partial / name).write_text(format_manifest(partial, name, facts), encoding="utf-8")
        durable.sync_path(partial / name)
        durable.sync_path(partial)
        remove_path(target)
        durable.replace_path(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def format_manifest(folder: Path, name: str, facts: dict[str, Any]) -> str:
    """Return the text of the manifest `name` of a folder whose other files are complete, after they are on the disk."""
    digests = {file: _hash_file(folder / file) for file in _list_files(folder) if file != name}
    durable.sync_tree(folder)
    return _format_record(facts, digests)


def find_facts(folder: Path, name: str) -> dict[str, Any]:
    """Load the facts in a folder's manifest, verifying only the manifest; empty if it is absent or damaged."""
    try:
        return _read_record(folder / name)[0]
    except DamagedFile:
        return {}


def load_checked_facts(folder: Path, name: str, wanted: Callable[[str], bool] = lambda file: True) -> dict[str, Any]:
    """Load the facts in a folder's manifest after verifying its files.

    Args:
        wanted: whether to hash the file at this path in the folder; of the others only their presence is checked.

    Raises:
        DamagedFile: the manifest or a file is absent, unreadable, damaged, or of an earlier version of this program, or
            there is an unknown file.
    """
    facts, digests = _read_record(folder / name)
    try:
        present = set(_list_files(folder)) - {name}
        if differing := sorted(present ^ digests.keys()):
            file = differing[0]
            raise DamagedFile(f"{folder / file}: {'is missing' if file in digests else 'does not belong there'}")
        for file in filter(wanted, digests):
            if _hash_file(folder / file) != digests[file]:
                raise DamagedFile(f"{folder / file}: is damaged, for its sha256 is not the one that was noted")
    except OSError as error:
        raise DamagedFile(f"{error.filename or folder}: cannot be read ({error.strerror or error})") from error
    return facts


def find_checked_facts(folder: Path, name: str) -> dict[str, Any]:
    """Load the facts as `load_checked_facts` does; empty if the folder is absent, or damaged, which is logged."""
    if os.path.lexists(folder):
        try:
            return load_checked_facts(folder, name)
        except DamagedFile as error:
            logger.warning("%s; the folder counts as absent, and a run makes it anew", error)
    return {}


def remove_path(path: Path) -> None:
    """Delete a file or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _list_files(folder: Path) -> list[str]:
    """List the files of a folder and below by their relative paths, such as `model/items.parquet`."""
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _read_record(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        return parse_record(path.read_bytes().decode(errors="replace"), str(path))
    except OSError as error:
        raise DamagedFile(f"{path}: cannot be read ({error.strerror})") from error


def parse_record(text: str, where: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Parse a manifest into the facts and the sha256 of each file.

    Raises:
        DamagedFile: it differs from what was written.
    """
    try:
        record = json.loads(text)
        found, digests = record["facts"], record["files"]
        if text == _format_record(found, digests):
            return found, digests
    except (ValueError, TypeError, KeyError):
        pass
    raise DamagedFile(f"{where}: is damaged, or of an earlier version of this program")


def compute_key(*parts: Any) -> str:
    """Compute the sha256 of values as JSON, by which stored results are found again; others are written by `str`."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


library_version = functools.cache(version)
"""Return the version of an installed library, whose metadata take milliseconds to read."""


def _format_record(facts: dict[str, Any], digests: dict[str, str]) -> str:
    body = {"facts": facts, "files": digests}
    own = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return json.dumps({**body, "sha256": own}, indent=1, sort_keys=True) + "\n"


def _hash_file(file: Path) -> str:
    with file.open("rb", buffering=0) as stream:
        status = os.fstat(stream.fileno())
        version, inode = (status.st_size, status.st_mtime_ns), (status.st_dev, status.st_ino)
        if inode not in _hash_cache or _hash_cache[inode][:2] != version:
            _hash_cache[inode] = *version, hashlib.file_digest(stream, "sha256").hexdigest()
    return _hash_cache[inode][2]
