"""Copy the current publication to an object store, where a shop's warehouse or application reads its lists as Parquet.

Below `<url>/<dataset>/` each publication has a folder of its own, `publications/<run>/`, whose files never change. A
small file `current.json`, replaced last and at once, names the folder of the current one. So who reads it first, and
then the files that it names, has the old publication or the new, never a mixture. The folders of publications that the
home no longer keeps are deleted. A run that finds its own publication there, whole, copies nothing.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oneclass.tasks.errors import InputError
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.publish.odcs import CONTRACT_FILE
from oneclass.tasks.publish.postgres import TABLES
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.secrets import hide_secrets, read_secret
from oneclass.tasks.stores import checksums, publications, runs
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.published_model import MANIFEST_FILE
from oneclass.tasks.stores.remote import INSTALL_S3, FileSystem, check_url, delete_files

logger = logging.getLogger(__name__)

POINTER_FILE = "current.json"
FOLDER = "publications"
COPIED_FILES = (*(file for file, _ in TABLES.values()), CONTRACT_FILE)  # those that a publication has


def copy_to_object_store(home: Home, run_id: str, settings: PublishSettings) -> None:
    """Copy the current publication below the URL `publish.object_store`, unless it is there already.

    A store that refuses or cannot be reached harms nothing here: it is an alarm of the run, and the next run copies.

    Args:
        run_id: the run whose alarm it is.

    Raises:
        InputError: the URL or the options cannot be used, or a package for this kind of URL is not installed.
    """
    if (alarm := update_object_store(home, settings)) is not None:
        runs.record_alarm(home, run_id, alarm)


def update_object_store(home: Home, settings: PublishSettings) -> str | None:
    """Copy the current publication unless it is there, delete those that the home has no more, and return why not.

    Returns:
        None if the object store is up to date.

    Raises:
        InputError: as `copy_to_object_store`.
    """
    options, secrets = _read_options(settings)
    system, root = _open_file_system(str(settings.object_store), options)
    target = f"{root}/{home.dataset}"
    try:
        copied = _copy_files(system, target, home.published.resolve())
        _delete_others(system, target, {facts["run_id"] for facts in publications.list_publications(home)})
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  (errors of botocore and other protocols have no common base)
        reason = " ".join(hide_secrets(f"{type(error).__name__}: {error}", secrets).split())
        return f"publish.object_store: {settings.object_store} could not be brought up to date ({reason})"
    what = "nothing is new" if copied is None else f"{copied / 1e6:,.1f} MB copied"
    logger.info("%s/%s: %s", settings.object_store, home.dataset, what)
    return None


def check_object_store(settings: PublishSettings) -> None:
    """Check that the URL and the options can be used; the server need not answer yet.

    Raises:
        InputError: as `copy_to_object_store`.
    """
    options, _ = _read_options(settings)
    _open_file_system(str(settings.object_store), options)


def _read_options(settings: PublishSettings) -> tuple[dict[str, Any], list[str]]:
    """Return the options of the file system, and the texts in them that no message may show."""
    places = {
        "env": settings.object_store_env,
        "file": settings.object_store_file,
        "block": settings.object_store_block,
    }
    if not any(places.values()):
        return {}, []
    content = 'a JSON object such as {"key": "...", "secret": "..."}'
    text = read_secret("publish.object_store", content, **places)
    try:
        options = json.loads(text)
    except json.JSONDecodeError:
        options = None
    if not isinstance(options, dict):
        raise InputError(f"publish.object_store: what is there is no JSON object. Write {content}.")
    return options, list(_list_texts(options))


def _list_texts(value: Any) -> Iterator[str]:
    """Yield the texts in plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _list_texts(item)


def _open_file_system(url: str, options: dict[str, Any]) -> tuple[FileSystem, str]:
    """Return the file system of a URL, and the path there."""
    import fsspec  # here, since few runs need it

    check_url(url, "publish.object_store")
    local = {"auto_mkdir": True} if url.startswith(("file:", "local:")) else {}
    try:
        system, root = fsspec.core.url_to_fs(url, use_listings_cache=False, **local, **options)
    except ImportError as error:
        raise InputError(f"publish.object_store = {url!r}: {error}. For s3:// run {INSTALL_S3}.") from error
    except (ValueError, TypeError) as error:
        problem = f"({type(error).__name__})" if options else f"({error})"  # which may quote an option
        raise InputError(f"publish.object_store = {url!r}: the URL or its options cannot be used {problem}.") from error
    return system, root.rstrip("/")


def _copy_files(system: FileSystem, target: str, folder: Path) -> int | None:
    """Copy the files of a publication, then name its folder in the pointer; returns bytes, or None if it is there.

    Args:
        target: the path of the data set in the file system.

    Raises:
        DamagedFile: a file of the publication is not what was published.
        OSError: the store has other bytes than were copied; or another error of the file system.
    """
    facts = checksums.load_checked_facts(folder, MANIFEST_FILE, lambda name: name in COPIED_FILES)
    digests = checksums.load_file_hashes(folder, MANIFEST_FILE)
    sizes = {name: (folder / name).stat().st_size for name in COPIED_FILES if (folder / name).exists()}
    remote = f"{target}/{FOLDER}/{facts['run_id']}"
    pointer = {
        "dataset": target.rpartition("/")[2],
        "run_id": facts["run_id"],
        "published_at": facts["published_at"],
        "folder": f"{FOLDER}/{facts['run_id']}",
        "files": {name: {"bytes": size, "sha256": digests[name]} for name, size in sizes.items()},
    }
    if _read_pointer(system, target) == pointer and _measure_files(system, remote) == sizes:
        return None
    for name in sizes:
        system.put_file(str(folder / name), f"{remote}/{name}")
    if (stored := _measure_files(system, remote)) != sizes:
        raise OSError(f"{remote} has files of other sizes than were copied: {stored} instead of {sizes}")
    # Moved, since a file that is written in place could be read half.
    system.pipe_file(f"{target}/.{POINTER_FILE}", json.dumps(pointer, indent=2).encode())
    system.mv(f"{target}/.{POINTER_FILE}", f"{target}/{POINTER_FILE}")
    return sum(sizes.values())


def _read_pointer(system: FileSystem, target: str) -> Any:
    """Return the pointer, or None if there is none that can be read."""
    try:
        return json.loads(system.cat_file(f"{target}/{POINTER_FILE}"))
    except (FileNotFoundError, ValueError):
        return None


def _measure_files(system: FileSystem, folder: str) -> dict[str, int]:
    """Return the bytes of each file in a folder."""
    return {path.rpartition("/")[2]: info["size"] for path, info in system.find(folder, detail=True).items()}


def _delete_others(system: FileSystem, target: str, kept: set[str]) -> None:
    """Delete the folders of all publications but these."""
    start = f"{target}/{FOLDER}/"
    files = [path for path in system.find(start) if path.rpartition(start)[2].partition("/")[0] not in kept]
    delete_files(system, files)


copy_to_object_store_task = stage_task(copy_to_object_store)
