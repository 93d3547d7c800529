"""Where numba keeps compiled kernels, so that no edit of the source ever leaves stale machine code in use.

numba's own cache looks only at the file that a kernel stands in, not at the helpers in other files that are compiled
into it. Here the kernels of a file lie in `<cache>/<room>.<file>-<fingerprint>/`, the fingerprint being that of the
file and of all that it imports: an edit moves the kernels of the files that can see it, and checkouts of equal source
share.
"""

import atexit
import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import numba
from numba.core import caching

from models import fingerprint

DAYS_KEPT = 30  # without use, while the source it was compiled from is no longer the one that runs
_save = caching.IndexDataCacheFile.save
FALLBACKS = "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,ZipCacheLocator"


def install() -> None:
    """Have numba keep in such folders the kernels that are declared from now on, unless the user names locators."""
    if caching.IndexDataCacheFile.save is not _save_in_turn:
        caching.IndexDataCacheFile.save = _save_in_turn
    if not os.environ.get("NUMBA_CACHE_LOCATOR_CLASSES"):
        numba.config.CACHE_LOCATOR_CLASSES = f"{__name__}.{FileLocator.__name__},{FALLBACKS}"


def _save_in_turn(cache: caching.IndexDataCacheFile, key: object, data: object) -> None:
    """Save one compiled signature, one process at a time.

    Two processes that compile two signatures of one kernel at once would choose one file name for both, and leave an
    index by which the machine code of one answers for the other.
    """
    with open(Path(cache._cache_path) / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _save(cache, key, data)


class FileLocator:
    """One kernel's place: what numba asks of a class named in `NUMBA_CACHE_LOCATOR_CLASSES`."""

    def __init__(self, py_file: str, line: int) -> None:
        file = Path(py_file)
        self._py_file, self._line = py_file, line  # numba names the file in its warnings
        self._stamp = fingerprint.of_file(file)
        self._folder = _folder(fingerprint.dotted_name(file), self._stamp)

    @classmethod
    def from_function(cls, function: Callable, py_file: str) -> Self | None:
        """The place of a kernel of `models/`, or of a file that imports them; None for any other, as numba wants it."""
        if not py_file.endswith(".py") or not os.path.exists(py_file) or not fingerprint.files(Path(py_file)):
            return None
        return cls(py_file, function.__code__.co_firstlineno)

    def ensure_cache_path(self) -> None:
        """Make the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        """The folder."""
        return str(self._folder)

    def get_source_stamp(self) -> str:
        """What the kernel was compiled from."""
        return self._stamp

    def get_disambiguator(self) -> str:
        """Tells kernels of one name in one file apart."""
        return str(self._line)


@functools.cache
def _folder(name: str, stamp: str) -> Path:
    """The folder of a file's kernels, a temporary one where it cannot be written to; drops those long unused."""
    root = os.environ.get("NUMBA_CACHE_DIR")
    if not root:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oneclass" / "numba"
    folder = Path(root) / f"{name}-{stamp}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        os.utime(folder)
    except OSError:
        return _temporary() / folder.name
    _drop_unused(folder.parent, name)
    return folder


def _drop_unused(root: Path, name: str) -> None:
    """Delete folders of other versions of a file that no process has begun to use for long."""
    oldest = time.time() - DAYS_KEPT * 24 * 3600
    for folder in root.glob(f"{name}-{'[0-9a-f]' * 16}"):
        with contextlib.suppress(OSError):  # another process may be deleting it
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="oneclass-numba-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
