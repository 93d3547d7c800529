"""Caching of compiled kernels, so that machine code of another source is never used.

numba's own cache checks only the file of a kernel, not the helpers in other files that are compiled into it. Here all
kernels of `models/` lie in `<cache>/models-<digest>/`, where the digest is that of every source file of `models/`. An
edit gives a new folder, and checkouts of equal source share one.

Faults of numba are worked around. Processes that save two signatures of one kernel at once would choose the same file
name for both, and a process killed between saving index and data could leave an index that names another signature's
machine code (`_save_locked`). A kernel would run other machine code just compiled than read from the cache
(`_finalize_with_own_copies`). A file damaged on the disk is compiled anew (`_is_whole`).
"""

import atexit
import contextlib
import fcntl
import functools
import hashlib
import itertools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import IO, Any, Self, TextIO

import numba
from llvmlite.binding import Linkage
from numba.core import caching
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

PACKAGE = Path(__file__).resolve().parent
MAX_UNUSED_DAYS = 30  # a folder of another source is deleted after this many days without use
MAX_WAIT_SECONDS = 300  # wait this long for a kernel that another process compiles, then compile it here too
FALLBACKS = "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,ZipCacheLocator"
CHECKSUM = hashlib.sha256().digest_size  # bytes at the end of each file
# Any: methods of these are replaced, which a type checker refuses.
_File: Any = caching.IndexDataCacheFile
_Dispatcher: Any = Dispatcher
_CodeLibrary: Any = CPUCodeLibrary
_open_for_write, _load_index, _load_data = _File._open_for_write, _File._load_index, _File._load_data
_compile, _finalize = _Dispatcher.compile, _CodeLibrary._finalize_final_module
_thread = threading.local()  # `compiling`: whether this thread holds the lock of a kernel


def install() -> None:
    """Make numba use this cache for kernels declared after the call, unless the user has set locators."""
    _File.save, _File._open_for_write = _save_locked, _open_with_checksum
    _File._load_index, _File._load_data = _load_whole_index, _load_whole_data
    _Dispatcher.compile, _CodeLibrary._finalize_final_module = _compile_once, _finalize_with_own_copies
    if not os.environ.get("NUMBA_CACHE_LOCATOR_CLASSES"):
        locators = f"{__name__}.{ModelsLocator.__name__},{FALLBACKS}"
        numba.config.CACHE_LOCATOR_CLASSES = locators  # pyright: ignore[reportAttributeAccessIssue]


@functools.cache
def source_digest() -> str:
    """Return the digest of every source file of `models/`."""
    return digest_of(PACKAGE.rglob("*.py"), PACKAGE)


def digest_of(files: Iterable[Path], package: Path) -> str:
    """Return the digest of the relative paths and contents of files in a package."""
    digest = hashlib.sha256()
    for name, file in sorted((file.relative_to(package).as_posix(), file) for file in files):
        digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


class ModelsLocator:
    """Locates the cache of one kernel; numba tries the classes that `NUMBA_CACHE_LOCATOR_CLASSES` lists."""

    def __init__(self, py_file: str, line: int) -> None:
        self._py_file = py_file  # for numba's warnings
        module = Path(py_file).resolve().relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
        self._disambiguator = f"{module}.{line}"

    @classmethod
    def from_function(cls, function: Callable[..., Any], py_file: str) -> Self | None:
        """Return the locator of a kernel if its file lies in `models/`, else None."""
        inside = os.path.exists(py_file) and Path(py_file).resolve().is_relative_to(PACKAGE)
        return cls(py_file, function.__code__.co_firstlineno) if inside else None

    def ensure_cache_path(self) -> None:
        """Create the folder."""
        folder().mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        """Return the folder."""
        return str(folder())

    def get_source_stamp(self) -> str:
        """Return the digest of the kernel's source."""
        return source_digest()

    def get_disambiguator(self) -> str:
        """Return a name that distinguishes kernels of equal names, in one file or in files of equal names."""
        return self._disambiguator


def root() -> Path:
    """Return the parent of the folders of all sources."""
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oneclass" / "numba"


@functools.cache
def folder() -> Path:
    """Return the folder of the kernels, or a temporary one if it is not writable; deletes folders long unused."""
    cache = root() / f"models-{source_digest()}"
    if not _is_writable(cache):
        temporary = Path(tempfile.mkdtemp(prefix="oneclass-numba-"))
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return temporary
    _delete_unused(cache.parent)
    return cache


def _is_writable(folder: Path) -> bool:
    """Whether files can be written into a folder; creates it if absent, and marks it as used today."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        os.utime(folder)
    except OSError:
        return False
    return True


def _delete_unused(root: Path) -> None:
    """Delete the folders of other sources that no process has opened for MAX_UNUSED_DAYS days."""
    oldest = time.time() - MAX_UNUSED_DAYS * 24 * 3600
    for cache in root.glob(f"models-{'[0-9a-f]' * 16}"):
        with contextlib.suppress(OSError):  # another process may be deleting it
            if cache.stat().st_mtime < oldest:
                shutil.rmtree(cache, ignore_errors=True)


def _save_locked(cache: Any, key: object, data: object) -> None:
    """Save one compiled signature, one process at a time, the data before the index that names its file.

    In numba's order, index first, a kill in between leaves an index that may name a file of another signature: one that
    was saved before a damaged index was reset.
    """
    with open(Path(cache._cache_path) / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file_names = cache._load_index()
        unused = (name for name in map(cache._data_name, itertools.count(1)) if name not in file_names.values())
        name = file_names.get(key) or next(unused)
        cache._save_data(name, data)
        cache._save_index(file_names | {key: name})


@contextlib.contextmanager
def _open_with_checksum(cache: Any, path: str) -> Generator[IO[bytes]]:
    """Open a file of the cache for writing and append the checksum of its content, where numba's unpickling ignores
    it.
    """
    with _open_for_write(cache, path) as file:
        yield file
        file.flush()
        file.write(hashlib.sha256(Path(file.name).read_bytes()).digest())


def _is_whole(path: str) -> bool:
    content = Path(path).read_bytes()
    return hashlib.sha256(content[:-CHECKSUM]).digest() == content[-CHECKSUM:]


def _load_whole_index(cache: Any) -> dict[Any, str]:
    """Load the index; empty if it is absent or damaged, so that its kernels are compiled and saved anew."""
    with contextlib.suppress(FileNotFoundError):
        if _is_whole(cache._index_path):
            return _load_index(cache)
    return {}


def _load_whole_data(cache: Any, name: str) -> Any:
    """Load a compiled kernel; numba compiles it on an OSError."""
    if not _is_whole(cache._data_path(name)):
        raise OSError(f"{name} is damaged")
    return _load_data(cache, name)


def _compile_once(dispatcher: Any, signature: Any) -> Any:
    """Compile a signature of a kernel, or load it from the cache once another process has compiled it.

    A compiling process holds numba's own lock and waits for one kernel at a time, the one that was called, so processes
    cannot deadlock.
    """
    is_cached = isinstance(dispatcher._cache, caching.FunctionCache)
    if not is_cached or getattr(_thread, "compiling", False):
        return _compile(dispatcher, signature)
    with global_compiler_lock, _signature_lock(dispatcher, signature):
        _thread.compiling = True
        try:
            return _compile(dispatcher, signature)
        finally:
            _thread.compiling = False


@contextlib.contextmanager
def _signature_lock(dispatcher: Any, signature: Any) -> Generator[None]:
    """Hold the lock of a signature between processes; go on without it after MAX_WAIT_SECONDS, or if locks fail."""
    cache, code = dispatcher._cache, dispatcher.py_func.__code__
    identity = f"{cache._impl.filename_base} {code.co_qualname} {signature}"
    name = hashlib.sha256(identity.encode()).hexdigest()[:16]
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a file system without locks
            cache._impl.locator.ensure_cache_path()
            lock = stack.enter_context(open(Path(cache.cache_path) / f"{name}.compiling", "w"))
            _acquire_lock(lock)
        yield


def _acquire_lock(lock: TextIO) -> None:
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.02)


def _finalize_with_own_copies(library: Any) -> None:
    """Make a kernel call its own copies of its helpers, so that it runs the same machine code compiled and cached.

    numba compiles the body of a parallel loop, and every helper that is not inlined, twice: once by itself, and once
    more within the kernel that calls it, where it is optimized again. Both copies have the same name. The process that
    compiles them runs the first copy and saves the second for later processes. Where the optimizer may fuse or reorder
    floating-point operations, the two copies differ in their last bits. So the second copy is made private to its
    kernel, and is the one that runs from the start. numba's reference counting (NRT_...), which it finds by name, stays
    shared.
    """
    linked = {
        function.name
        for other in library._linking_libraries
        for function in other._get_module_for_linking().functions
        if not function.is_declaration and not function.name.startswith("NRT_")
    }
    for function in library._final_module.functions:
        if function.name in linked and not function.is_declaration:
            function.linkage = Linkage.internal
    _finalize(library)
