"""The stores of matrices and fits by URL, for workers that share no folder with the coordinator.

Below `<url>/<dataset>/` they lie as in the home (`matrices/<digest>/`, `models/<model>/<digest>/`), at whatever fsspec reaches,
such as `s3://bucket/prefix`. A folder is put there file by file and its record last, so that one that is half put counts as
absent. Whoever needs it gets all of it, checks each file against the sha256 in the record, and renames it into the home that
he has; behind that nothing knows of URLs. A worker has a home of its own for it, its cache. What is damaged at the URL loses
its record, so that whoever has it whole puts it there anew.
"""

import contextlib
import hashlib
import logging
import shutil
import uuid
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.errors import StoreLost
from tasks.stores import manifest, urls
from tasks.stores.home import Home

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

logger = logging.getLogger(__name__)

STORES = "matrices", "models"  # what of a home lies at its URL for as long as it is kept
_cache: Path | None = None  # of a worker, which has no other home


def work_in(folder: Path) -> None:
    """Let this process, a worker's, keep in a folder of its own what it gets from a URL."""
    global _cache
    _cache = folder


def here(home: Home) -> Home:
    """The home as this process has it: on a worker, where the home has a URL, its cache."""
    if home.store is None or _cache is None:
        return home
    return replace(home, root=_cache / hashlib.sha256(home.store.encode()).hexdigest()[:16])


def put(home: Home, folder: Path, record: str) -> None:
    """Put a stored folder at the home's URL, if it has one, unless it is there.

    Raises:
        StoreLost: it cannot be written there.
    """
    if home.store is None:
        return
    digests = manifest.files(folder, record)
    sizes = {name: (folder / name).stat().st_size for name in digests}
    try:
        with urls.reached(home) as (system, path):
            there = f"{path}/{urls.relative(home, folder)}"
            if (before := _record(system, there, record)) == digests and _has(system, there, sizes):
                return
            if before is not None and before != digests:
                system.rm_file(f"{there}/{record}")
            for name in digests:
                system.put_file(str(folder / name), f"{there}/{name}")
            system.pipe_file(f"{there}/{record}", (folder / record).read_bytes())
    except FileNotFoundError as error:
        raise StoreLost(urls.lost(home, error)) from error
    logger.info("%s: put there, %.1f MB", urls.of(home, folder), sum(sizes.values()) / 1e6)


def fetch(home: Home, folder: Path, record: str) -> None:
    """Have a stored folder in the home, from its URL where it is not here whole; where that has none, nothing is done.

    Raises:
        StoreLost: the URL cannot be read.
    """
    if home.store is None or manifest.is_whole(folder, record):
        return
    half_made = folder.with_name(f"partial-{uuid.uuid4().hex}")
    try:
        with urls.reached(home) as (system, path):
            there = f"{path}/{urls.relative(home, folder)}"
            try:
                text = system.cat_file(f"{there}/{record}")
            except FileNotFoundError:
                return
            half_made.mkdir(parents=True)
            (half_made / record).write_bytes(text)
            for name in manifest.files(half_made, record):
                (half_made / name).parent.mkdir(parents=True, exist_ok=True)
                system.get_file(f"{there}/{name}", str(half_made / name))
        manifest.checked(half_made, record)
        manifest.remove(folder)
        half_made.rename(folder)
    except (manifest.Damaged, FileNotFoundError) as error:
        what = str(error).replace(f"{half_made}/", "")
        logger.warning("%s: is damaged, and counts as absent: %s", urls.of(home, folder), what)
        discard(home, folder, record)
    finally:
        shutil.rmtree(half_made, ignore_errors=True)


def require(home: Home, folder: Path, record: str) -> None:
    """As `fetch`, for a folder that has to be there.

    Raises:
        StoreLost: the URL cannot be read.
        Damaged: it has none that is whole.
    """
    fetch(home, folder, record)
    if home.store is not None and not folder.exists():
        raise manifest.Damaged(absent(home, folder))


def absent(home: Home, folder: Path) -> str:
    """What is said of a folder that is not at the home's URL and should be."""
    return f"{urls.of(home, folder)}: is not there, or not whole; run the same command again, which puts it there anew"


def fetch_stretch(home: Home, place: Path, start: int, end: int | None, target: Path) -> None:
    """Get the bytes [start, end) of a file of the home from its URL, whole or not at all.

    Raises:
        FileNotFoundError: it is not there.
        StoreLost: the URL cannot be read.
    """
    half_made = target.with_name(f"partial-{uuid.uuid4().hex}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with urls.reached(home) as (system, path):
        half_made.write_bytes(system.cat_file(f"{path}/{urls.relative(home, place)}", start=start, end=end))
    half_made.rename(target)


def discard(home: Home, folder: Path, record: str) -> None:
    """Take the record of a damaged folder away from the home's URL, so that it is put there anew."""
    with contextlib.suppress(FileNotFoundError), urls.reached(home) as (system, path):
        system.rm_file(f"{path}/{urls.relative(home, folder)}/{record}")


def places(home: Home) -> set[str]:
    """What folders of the stores lie at the home's URL, such as models/wmf/0123456789abcdef."""
    with urls.reached(home) as (system, path):
        return {_place(found, path) for store in STORES for found in system.find(f"{path}/{store}")}


def drop_others(home: Home, kept: Collection[str]) -> None:
    """Delete from the home's URL, if it has one, every folder of the stores but some; where it is away, that is said.

    Args:
        kept: of `places`.
    """
    if home.store is None:
        return
    try:
        with urls.reached(home) as (system, path):
            found = [file for store in STORES for file in system.find(f"{path}/{store}")]
            urls.delete(system, [file for file in found if _place(file, path) not in kept])
    except (FileNotFoundError, StoreLost) as error:
        logger.warning("not tidied: %s", error)


def _place(file: str, path: str) -> str:
    parts = file[len(path) :].strip("/").split("/")
    return "/".join(parts[: 3 if parts[0] == "models" else 2])


def _record(system: "AbstractFileSystem", there: str, record: str) -> dict[str, str] | None:
    """The sha256 of each file by the record that is there; None without one, or with one that is damaged."""
    with contextlib.suppress(FileNotFoundError, UnicodeDecodeError, manifest.Damaged):
        return manifest.parsed(system.cat_file(f"{there}/{record}").decode(), there)[1]
    return None


def _has(system: "AbstractFileSystem", there: str, sizes: dict[str, int]) -> bool:
    found = {path.rpartition(there + "/")[2]: about["size"] for path, about in system.find(there, detail=True).items()}
    return all(found.get(name) == size for name, size in sizes.items())
