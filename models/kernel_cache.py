"""Where numba keeps compiled kernels, so that machine code of an older source is never used.

numba's own cache looks only at the file that a kernel stands in, not at the helpers in other files that are compiled
into it. Here the kernels of a file lie in `<cache>/<room>.<file>-<fingerprint>/`. The fingerprint covers the file and
all that it imports, so that an edit gives new folders to the kernels of all files that can see it, and checkouts of
equal source share their kernels.
"""

import atexit
import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TextIO

import numba
from numba.core import caching
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from models import fingerprint

DAYS_KEPT = 30  # a folder of another version of the source is deleted after so many days without use
PATIENCE = 300  # seconds for which a kernel that another process compiles is waited for, before it is compiled here too
_save = caching.IndexDataCacheFile.save
_compile = Dispatcher.compile
_alone = threading.local()  # whether this thread is compiling a kernel that no other process compiles meanwhile
FALLBACKS = "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,ZipCacheLocator"


def install() -> None:
    """Have numba keep in such folders the kernels that are declared from now on, unless the user names locators."""
    caching.IndexDataCacheFile.save, Dispatcher.compile = _save_in_turn, _compile_once
    if not os.environ.get("NUMBA_CACHE_LOCATOR_CLASSES"):
        numba.config.CACHE_LOCATOR_CLASSES = f"{__name__}.{FileLocator.__name__},{FALLBACKS}"


def _save_in_turn(cache: caching.IndexDataCacheFile, key: object, data: object) -> None:
    """Save one compiled signature, one process at a time.

    Two processes that compile two signatures of one kernel at once would choose the same file name for both. The index
    would then name the machine code of one signature for the other.
    """
    with open(Path(cache._cache_path) / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _save(cache, key, data)


def _compile_once(dispatcher: Dispatcher, signature: object) -> Any:
    """Compile a signature of a kernel, or read it from the cache once another process has compiled it.

    A process that compiles holds numba's own lock, and waits for one kernel at a time, the one that was called: none
    can wait for another in a circle.
    """
    kept = isinstance(dispatcher._cache, caching.FunctionCache)
    if not kept or getattr(_alone, "compiling", False):
        return _compile(dispatcher, signature)
    with global_compiler_lock, _held(dispatcher, signature):
        _alone.compiling = True
        try:
            return _compile(dispatcher, signature)
        finally:
            _alone.compiling = False


@contextlib.contextmanager
def _held(dispatcher: Dispatcher, signature: object) -> Iterator[None]:
    """No other process compiles the signature in the block, unless one did for longer than PATIENCE, or cannot be seen."""
    cache, code = dispatcher._cache, dispatcher.py_func.__code__
    asked = f"{code.co_qualname} {code.co_firstlineno} {signature}"
    name = hashlib.sha256(asked.encode()).hexdigest()[:16]
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a file system without locks
            cache._impl.locator.ensure_cache_path()
            lock = stack.enter_context(open(Path(cache.cache_path) / f"{name}.compiling", "w"))
            _wait_for(lock)
        yield


def _wait_for(lock: TextIO) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.02)


class FileLocator:
    """Where one kernel is kept; numba asks the classes that `NUMBA_CACHE_LOCATOR_CLASSES` names."""

    def __init__(self, py_file: str, line: int) -> None:
        file = Path(py_file)
        self._py_file, self._line = py_file, line  # numba names the file in its warnings
        self._stamp = fingerprint.of_file(file)
        self._folder = _folder(fingerprint.dotted_name(file), self._stamp)

    @classmethod
    def from_function(cls, function: Callable, py_file: str) -> Self | None:
        """The place of a kernel, if its file lies in `models/` or imports from it; else None, as numba wants it."""
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


def root() -> Path:
    """The folder that has a folder for the kernels of each file."""
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oneclass" / "numba"


@functools.cache
def _folder(name: str, stamp: str) -> Path:
    """The folder of a file's kernels, or a temporary one if it cannot be written to; deletes folders long unused."""
    folder = root() / f"{name}-{stamp}"
    if not _can_hold_files(folder):
        return _temporary() / folder.name
    _drop_unused(folder.parent, name)
    return folder


def can_keep() -> bool:
    """Whether kernels that are compiled here are still there for another process."""
    return _can_hold_files(root())


def _can_hold_files(folder: Path) -> bool:
    """Whether files can be written into a folder, which is made where it is not, and counts as used today."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        os.utime(folder)
    except OSError:
        return False
    return True


def _drop_unused(root: Path, name: str) -> None:
    """Delete the folders of other versions of a file that no process has opened for DAYS_KEPT days."""
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
