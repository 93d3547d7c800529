"""What the URL of a home's stores (`--store`) is reached by: fsspec, which knows `s3://` and many other kinds.

Credentials are those that it finds in the environment. Whatever goes wrong there is told by the URL, and what to do.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tasks.errors import InputError, OneclassError, StoreLost
from tasks.stores.home import Home

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

EXTRA = "python -m pip install -c constraints.txt -e '.[s3]'"


def check(url: str) -> None:
    """Check that it is a URL as `--store` takes it.

    Raises:
        InputError: it is not such a URL, or has a password in it.
    """
    parts = urlsplit(url)
    if not parts.scheme or not (parts.netloc or parts.path.strip("/")):
        raise InputError(f"--store {url}: write it as s3://BUCKET/PREFIX, or another URL that fsspec knows.")
    if parts.password is not None:
        raise InputError(
            "--store: has a password in it, which Prefect would show; give credentials by the environment."
        )


def of(home: Home, place: Path | str = "") -> str:
    """Where something of the home lies at its URL, for people.

    Args:
        place: a path in the home, or relative to it.
    """
    return "/".join(filter(None, (home.store.rstrip("/"), home.dataset, relative(home, place))))


@contextlib.contextmanager
def reached(home: Home) -> Iterator[tuple["AbstractFileSystem", str]]:
    """The file system of the home's URL, and the path of the data set there.

    Raises:
        InputError: fsspec does not know such URLs, or lacks a package.
        StoreLost: the server cannot be reached, or refuses.
        FileNotFoundError: what was asked for is not there.
    """
    import fsspec  # here: few commands need it

    local = {"auto_mkdir": True} if home.store.startswith(("file:", "local:")) else {}
    try:
        system, path = fsspec.core.url_to_fs(home.store, use_listings_cache=False, **local)
    except ImportError as error:
        raise InputError(f"--store {home.store}: {error}. For s3:// run {EXTRA}, on every worker too.") from error
    except ValueError as error:
        raise InputError(f"--store {home.store}: {error}.") from error
    try:
        yield system, f"{path}/{home.dataset}"
    except (OneclassError, FileNotFoundError, MemoryError):
        raise
    except Exception as error:  # botocore's have no kind in common with other protocols'
        if getattr(error, "errno", None) == errno.ENOSPC:  # of this machine
            raise
        raise StoreLost(lost(home, error)) from error


def delete(system: "AbstractFileSystem", files: list[str]) -> None:
    """Delete some files, if there are any."""
    if files:
        system.rm(files)


def relative(home: Home, place: Path | str) -> str:
    """A path in the home by its place there; what is such a place already stays."""
    return os.path.relpath(place, home.folder) if isinstance(place, Path) else place


def lost(home: Home, error: BaseException) -> str:
    """What went wrong at the home's URL, and what to do."""
    return (
        f"{home.store}: cannot be used ({type(error).__name__}: {error}). Check that the bucket exists, that the server "
        "answers, and that the credentials in the environment may list, read, write and delete there. Fits that were made "
        "are kept; the same command goes on from there."
    )
