"""The stores of matrices and fits at a URL (`--store`), for workers that share no folder with the coordinator.

Below `<url>/<dataset>/` they are laid out as in the home (`matrices/<digest>/`, `models/<model>/<digest>/`), on any
file system that fsspec knows, such as `s3://bucket/prefix`, with the credentials in the environment. A folder is
uploaded file by file and its record last, so that a partial upload counts as absent. A download is verified against the
sha256 in the record and moved into the local home, a worker's cache. No other module handles this URL. A
damaged folder at the URL loses its record, so that a process with a whole copy uploads it again.
"""

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import uuid
from collections.abc import Collection, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from oneclass.tasks.errors import InputError, OneclassError, SharedStoreUnavailable
from oneclass.tasks.stores import checksums, durable
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

FileSystem: TypeAlias = Any  # fsspec's AbstractFileSystem, whose methods have no annotations
STORES = "matrices", "models"
SCRATCH = "spill"  # of the run in progress
INSTALL_S3 = "python -m pip install -c constraints.txt -e '.[s3]'"
_cache: Path | None = None  # a worker's, which has no other home


def check_url(url: str, name: str = "--store") -> None:
    """Check the form of a URL of files.

    Args:
        name: of the flag or setting, for messages.

    Raises:
        InputError: it is not a URL, or has a password or a query in it.
    """
    parts = urlsplit(url)
    if parts.password is not None or parts.query:
        part = "query" if parts.password is None else "password"
        raise InputError(f"{name}: has a {part} in it, which Prefect would show; give credentials by the environment.")
    if not parts.scheme or not (parts.netloc or parts.path.strip("/")):
        raise InputError(f"{name} {url}: write it as s3://BUCKET/PREFIX, or another URL that fsspec knows.")


def url_of(home: Home, path: Path | str) -> str:
    """The URL of a path of the home, absolute or relative to the data set's folder."""
    assert home.store is not None
    relative = os.path.relpath(path, home.folder) if isinstance(path, Path) else path
    return f"{home.store.rstrip('/')}/{home.dataset}/{relative}"


@contextlib.contextmanager
def open_store(home: Home) -> Generator[tuple[FileSystem, str]]:
    """The file system of the home's URL, and the path of the data set there.

    Raises:
        InputError: fsspec does not know such URLs, or lacks a package.
        SharedStoreUnavailable: the server cannot be reached, or refuses.
        FileNotFoundError: from the body, if it reads an absent file.
    """
    import fsspec  # here, since few commands need it

    assert home.store is not None
    local = {"auto_mkdir": True} if home.store.startswith(("file:", "local:")) else {}
    try:
        system, path = fsspec.core.url_to_fs(home.store, use_listings_cache=False, **local)
    except ImportError as error:
        raise InputError(f"--store {home.store}: {error}. For s3:// run {INSTALL_S3}, on every worker too.") from error
    except ValueError as error:
        raise InputError(f"--store {home.store}: {error}.") from error
    try:
        yield system, f"{path}/{home.dataset}"
    except (OneclassError, FileNotFoundError, MemoryError):
        raise
    except Exception as error:  # botocore's and other protocols' errors have no base class in common
        if getattr(error, "errno", None) == errno.ENOSPC:  # of this machine's disk
            raise
        raise SharedStoreUnavailable(explain_failure(home, error)) from error


def explain_failure(home: Home, error: BaseException) -> str:
    """The message for a URL that cannot be used."""
    return (
        f"{home.store}: cannot be used ({type(error).__name__}: {error}). Check that the bucket exists, that the "
        "server answers, and that the credentials in the environment may list, read, write and delete there. Fits "
        "that were made are kept; the same command goes on from there."
    )


def use_cache(folder: Path | None) -> None:
    """Let this process, a worker's, download into a folder of its own."""
    global _cache
    _cache = folder


def local_home(home: Home) -> Home:
    """The home as this process has it: on a worker its cache, if the home has a URL."""
    if home.store is None or _cache is None:
        return home
    return replace(home, root=_cache / hashlib.sha256(home.store.encode()).hexdigest()[:16])


def upload(home: Home, folder: Path, record: str) -> None:
    """Upload a stored folder to the home's URL, if it has one, unless it is there.

    Raises:
        SharedStoreUnavailable: it cannot be written there.
    """
    if home.store is None:
        return
    digests = checksums.load_file_hashes(folder, record)
    sizes = {name: (folder / name).stat().st_size for name in digests}
    try:
        with open_store(home) as (system, path):
            target = f"{path}/{os.path.relpath(folder, home.folder)}"
            before = _read_record(system, target, record)
            if before == digests and _has_sizes(system, target, sizes):
                return
            if before is not None and before != digests:
                system.rm_file(f"{target}/{record}")
            for name in digests:
                system.put_file(str(folder / name), f"{target}/{name}")
            system.pipe_file(f"{target}/{record}", (folder / record).read_bytes())
    except FileNotFoundError as error:
        raise SharedStoreUnavailable(explain_failure(home, error)) from error
    logger.info("%s: uploaded, %.1f MB", url_of(home, folder), sum(sizes.values()) / 1e6)


def download(home: Home, folder: Path, record: str) -> None:
    """Download a stored folder, unless it is whole here; nothing is done if the URL has none.

    Raises:
        SharedStoreUnavailable: the URL cannot be read.
    """
    if home.store is None or checksums.verify_folder(folder, record):
        return
    partial = folder.with_name(f"partial-{uuid.uuid4().hex}")
    try:
        with open_store(home) as (system, path):
            source = f"{path}/{os.path.relpath(folder, home.folder)}"
            try:
                text = system.cat_file(f"{source}/{record}")
            except FileNotFoundError:
                return
            durable.make_folder(partial)
            (partial / record).write_bytes(text)
            for name in checksums.load_file_hashes(partial, record):
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                system.get_file(f"{source}/{name}", str(partial / name))
        checksums.load_checked_facts(partial, record)
        checksums.remove_path(folder)
        durable.sync_tree(partial)
        durable.replace_path(partial, folder)
    except (checksums.DamagedFile, FileNotFoundError) as error:
        reason = str(error).replace(f"{partial}/", "")
        logger.warning("%s: is damaged, and counts as absent: %s", url_of(home, folder), reason)
        with contextlib.suppress(FileNotFoundError), open_store(home) as (system, path):
            system.rm_file(f"{path}/{os.path.relpath(folder, home.folder)}/{record}")
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def require(home: Home, folder: Path, record: str) -> None:
    """As `download`, for a folder that must exist.

    Raises:
        SharedStoreUnavailable: the URL cannot be read.
        DamagedFile: it has none that is whole.
    """
    download(home, folder, record)
    if home.store is not None and not folder.exists():
        raise checksums.DamagedFile(explain_absence(home, folder))


def explain_absence(home: Home, folder: Path) -> str:
    """The message for a folder that should be at the home's URL."""
    return f"{url_of(home, folder)}: is not there, or not whole; run the same command again, which puts it there anew"


def list_folders(home: Home) -> set[str]:
    """The stored folders at the home's URL, such as models/wmf/0123456789abcdef."""
    with open_store(home) as (system, path):
        return {_folder_of(file, path) for store in STORES for file in system.find(f"{path}/{store}")}


def delete_others(home: Home, kept: Collection[str]) -> None:
    """Delete every folder at the home's URL except `kept` (of `list_folders`); failures are logged."""
    if home.store is None:
        return
    try:
        with open_store(home) as (system, path):
            files = [file for store in STORES for file in system.find(f"{path}/{store}")]
            delete_files(system, [file for file in files if _folder_of(file, path) not in kept])
    except (FileNotFoundError, SharedStoreUnavailable) as error:
        logger.warning("not tidied: %s", error)


def delete_all(home: Home) -> int:
    """Delete every folder of the data set at the home's URL, and return the number of deleted files.

    Raises:
        SharedStoreUnavailable: it cannot be read or written.
    """
    with open_store(home) as (system, path):
        files = [file for store in (*STORES, SCRATCH) for file in system.find(f"{path}/{store}")]
        delete_files(system, files)
    return len(files)


def write_sentinel(home: Home, name: str) -> None:
    """Delete the scratch files of an earlier run, and write a file by which workers know that they see the same place.

    Raises:
        InputError: the URL cannot be written to.
    """
    try:
        with open_store(home) as (system, path):
            delete_files(system, system.find(f"{path}/{SCRATCH}"))
            system.pipe_file(f"{path}/{SCRATCH}/{name}", b"a run of oneclass goes on\n")
    except (FileNotFoundError, SharedStoreUnavailable) as error:
        raise InputError(f"--store {explain_failure(home, error.__cause__ or error)}") from error


def has_sentinel(home: Home, name: str) -> bool:
    """Whether this process finds a run's sentinel at the URL.

    Raises:
        OneclassError: the URL cannot be read.
    """
    with contextlib.suppress(FileNotFoundError), open_store(home) as (system, path):
        return bool(system.cat_file(f"{path}/{SCRATCH}/{name}"))
    return False


def remove_sentinel(home: Home, name: str) -> None:
    """Delete a run's sentinel, if the URL can still be reached."""
    with contextlib.suppress(FileNotFoundError, SharedStoreUnavailable), open_store(home) as (system, path):
        system.rm_file(f"{path}/{SCRATCH}/{name}")


def delete_files(system: FileSystem, files: list[str]) -> None:
    """Delete files; fsspec refuses an empty list."""
    if files:
        system.rm(files)


def _folder_of(file: str, path: str) -> str:
    parts = file[len(path) :].strip("/").split("/")
    return "/".join(parts[: 3 if parts[0] == "models" else 2])


def _read_record(system: FileSystem, folder: str, record: str) -> dict[str, str] | None:
    """The sha256 of each file, by the record at the URL; None if that is absent or damaged."""
    with contextlib.suppress(FileNotFoundError, UnicodeDecodeError, checksums.DamagedFile):
        return checksums.parse_record(system.cat_file(f"{folder}/{record}").decode(), folder)[1]
    return None


def _has_sizes(system: FileSystem, folder: str, sizes: dict[str, int]) -> bool:
    found = {path.rpartition(folder + "/")[2]: info["size"] for path, info in system.find(folder, detail=True).items()}
    return all(found.get(name) == size for name, size in sizes.items())
