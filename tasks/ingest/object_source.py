"""Land new and changed objects below a URL, such as those of a bucket, in the landing folder.

Each is downloaded under a hidden name and renamed when it is whole. `.source-objects.jsonl` has a line for each object
that was landed, with its version, as ingested files may be removed. An object that was landed by a process that was
killed before it wrote the line is landed again: the same file in the same place.
"""

import contextlib
import errno
import json
import logging
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.source import Source
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.ingest.landing import DONE, QUARANTINE
from oneclass.tasks.ingest.sources import is_log_name
from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.remote import INSTALL_S3, FileSystem

logger = logging.getLogger(__name__)

JOURNAL = ".source-objects.jsonl"
PARTIAL = ".source-partial-object"
Version: TypeAlias = tuple[str, int]


def land_objects(home: Home, dataset: Dataset, source: Source) -> None:
    """Land the objects that are new or have other bytes, if the patterns `files` match their names.

    Raises:
        InputError: the URL cannot be read. What was landed before stays.
    """
    durable.make_folder(home.landing)
    partial = home.landing / PARTIAL
    try:
        landed, objects = _land_new_objects(home.landing, partial, dataset, source)
    except ImportError as error:
        raise InputError(f"[source] url = {source.url!r}: {error}. For s3:// run {INSTALL_S3}.") from error
    except MemoryError:
        raise
    except Exception as error:  # botocore's and other protocols' errors have no base class in common
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise OneclassError(f"{home.landing}: the disk is full. Free some space, then run again.") from error
        raise InputError(
            f"[source] url = {source.url!r}: cannot be read ({type(error).__name__}: {error}). Check the URL, that the "
            "server answers, and that the credentials in the environment may list and read there."
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    logger.info("[source]: landed %d of %d objects at %s, the others were known", landed, objects, source.url)


def _land_new_objects(landing: Path, partial: Path, dataset: Dataset, source: Source) -> tuple[int, int]:
    """Return the number of landed objects and of all."""
    import fsspec  # here, since few data sets need it

    system, root = fsspec.core.url_to_fs(source.url, use_listings_cache=False)
    objects = [one for one in _list_objects(system, root) if is_log_name(PurePosixPath(one[0]).name, dataset)]
    known, count = _read_journal(landing / JOURNAL), 0
    for name, path, version in objects:
        if known.get(name) == version:
            continue
        system.get_file(path, str(partial))
        if _version(system.info(path)) != version or version[1] != partial.stat().st_size:
            logger.warning("%s: changed while it was read. It is left for the next run.", path)
            continue
        target = landing / name
        durable.make_folder(target.parent)
        durable.install_file(partial, target)
        with open(landing / JOURNAL, "a", encoding="utf-8") as journal:
            journal.write("\n" + json.dumps([name, version]))  # after a line that a kill cut short
        count += 1
    return count, len(objects)


def _list_objects(system: FileSystem, root: str) -> Iterator[tuple[str, str, Version]]:
    """Yield (name below the URL, path, version) of each object that the landing folder can hold, by name."""
    for path, info in sorted(system.find(root, detail=True).items()):
        name = path.removeprefix(root).strip("/") or PurePosixPath(path).name
        parts = name.split("/")
        if any(part.startswith(".") or not part for part in parts) or parts[0] in (QUARANTINE, DONE):
            logger.warning("%s: left out, as the landing folder cannot have a log of this name", path)
        elif info["size"]:
            yield name, path, _version(info)


def _version(info: dict[str, Any]) -> Version:
    """Return what changes with an object's bytes: its ETag, else the time of its last change; and its size."""
    marks = (info.get(key) for key in ("ETag", "etag", "mtime", "LastModified", "last_modified"))
    return str(next(filter(None, marks), "")), info["size"]


def _read_journal(journal: Path) -> dict[str, Version]:
    """Return the version of each object that was landed, by its name."""
    known = {}
    for line in journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            name, (mark, size) = json.loads(line)
            known[name] = (mark, size)
    return known
