"""How numba compiles kernels, and where it keeps their machine code, so that code of an older source is never used.

numba's own cache looks only at the file that a kernel stands in, not at the helpers in other files that are compiled
into it. Here all kernels of `models/` lie in `<cache>/models-<digest>/`, where the digest is of every source file of
`models/`. An edit gives a new folder, and checkouts of equal source share one.

Two faults of numba are worked around. Two processes that save two signatures of one kernel at once would choose the same
file name for both (`_save_in_turn`). A kernel would run other machine code just compiled than read from the cache
(`_finalize_with_own_copies`). A file that was damaged on the disk is compiled anew (`_is_whole`).
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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Self, TextIO

import numba
from llvmlite.binding import Linkage
from numba.core import caching
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

PACKAGE = Path(__file__).resolve().parent
DAYS_KEPT = 30  # a folder of another source is deleted after so many days without use
PATIENCE = 300  # seconds for which a kernel that another process compiles is waited for, before it is compiled here too
FALLBACKS = "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,ZipCacheLocator"
CHECKSUM = hashlib.sha256().digest_size  # bytes at the end of each file
# Any: methods of these are replaced, which a type checker refuses.
_File: Any = caching.IndexDataCacheFile
_Dispatcher: Any = Dispatcher
_CodeLibrary: Any = CPUCodeLibrary
_save, _open_for_write, _load_index, _load_data = _File.save, _File._open_for_write, _File._load_index, _File._load_data
_compile, _finalize = _Dispatcher.compile, _CodeLibrary._finalize_final_module
_alone = threading.local()  # whether this thread is compiling a kernel that no other process compiles meanwhile


def install() -> None:
    """Have numba compile and keep so the kernels that are declared from now on, unless the user names locators."""
    _File.save, _File._open_for_write = _save_in_turn, _open_with_checksum
    _File._load_index, _File._load_data = _load_whole_index, _load_whole_data
    _Dispatcher.compile, _CodeLibrary._finalize_final_module = _compile_once, _finalize_with_own_copies
    if not os.environ.get("NUMBA_CACHE_LOCATOR_CLASSES"):
        locators = f"{__name__}.{ModelsLocator.__name__},{FALLBACKS}"
        numba.config.CACHE_LOCATOR_CLASSES = locators  # pyright: ignore[reportAttributeAccessIssue, reportPrivateImportUsage]


@functools.cache
def source_digest() -> str:
    """Digest of every source file of `models/`."""
    return digest_of(PACKAGE.rglob("*.py"), PACKAGE)


def digest_of(files: Iterable[Path], package: Path) -> str:
    """Digest of the names within a package, and of the bytes, of files in it."""
    digest = hashlib.sha256()
    for name, file in sorted((file.relative_to(package).as_posix(), file) for file in files):
        digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


class ModelsLocator:
    """Where one kernel is kept; numba asks the classes that `NUMBA_CACHE_LOCATOR_CLASSES` names."""

    def __init__(self, py_file: str, line: int) -> None:
        self._py_file = py_file  # numba names the file in its warnings
        self._place = (
            f"{Path(py_file).resolve().relative_to(PACKAGE).with_suffix('').as_posix().replace('/', '.')}.{line}"
        )

    @classmethod
    def from_function(cls, function: Callable, py_file: str) -> Self | None:
        """The place of a kernel, if its file lies in `models/`; else None, as numba wants it."""
        inside = os.path.exists(py_file) and Path(py_file).resolve().is_relative_to(PACKAGE)
        return cls(py_file, function.__code__.co_firstlineno) if inside else None

    def ensure_cache_path(self) -> None:
        """Make the folder."""
        folder().mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        """The folder."""
        return str(folder())

    def get_source_stamp(self) -> str:
        """What the kernel was compiled from."""
        return source_digest()

    def get_disambiguator(self) -> str:
        """Tells kernels of one name apart, in one file or in files of one name."""
        return self._place


def root() -> Path:
    """The folder that has a folder for each source."""
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oneclass" / "numba"


@functools.cache
def folder() -> Path:
    """The folder of the kernels, or a temporary one if it cannot be written to; deletes folders long unused."""
    kept = root() / f"models-{source_digest()}"
    if not _can_hold_files(kept):
        temporary = Path(tempfile.mkdtemp(prefix="oneclass-numba-"))
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return temporary
    _drop_unused(kept.parent)
    return kept


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


def _drop_unused(root: Path) -> None:
    """Delete the folders of other sources that no process has opened for DAYS_KEPT days."""
    oldest = time.time() - DAYS_KEPT * 24 * 3600
    for old in root.glob(f"models-{'[0-9a-f]' * 16}"):
        with contextlib.suppress(OSError):  # another process may be deleting it
            if old.stat().st_mtime < oldest:
                shutil.rmtree(old, ignore_errors=True)


def _save_in_turn(cache: caching.IndexDataCacheFile, key: object, data: object) -> None:
    """Save one compiled signature, one process at a time; else the index could name one's machine code for another."""
    with open(Path(cache._cache_path) / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _save(cache, key, data)


@contextlib.contextmanager
def _open_with_checksum(cache: caching.IndexDataCacheFile, path: str) -> Iterator[IO[bytes]]:
    """Open a file of the cache; the checksum of what was written follows it. numba, reading a pickle, stops before that."""
    with _open_for_write(cache, path) as file:
        yield file
        file.flush()
        file.write(hashlib.sha256(Path(file.name).read_bytes()).digest())


def _is_whole(path: str) -> bool:
    content = Path(path).read_bytes()
    return hashlib.sha256(content[:-CHECKSUM]).digest() == content[-CHECKSUM:]


def _load_whole_index(cache: caching.IndexDataCacheFile) -> dict[Any, str]:
    """The index; empty where it is missing or damaged, so that what it named is compiled and saved anew."""
    with contextlib.suppress(FileNotFoundError):
        if _is_whole(cache._index_path):
            return _load_index(cache)
    return {}


def _load_whole_data(cache: caching.IndexDataCacheFile, name: str) -> Any:
    """What was saved of a kernel; numba takes an OSError to say that there is nothing, and compiles."""
    if not _is_whole(cache._data_path(name)):
        raise OSError(f"{name} is damaged")
    return _load_data(cache, name)


def _compile_once(dispatcher: Any, signature: Any) -> Any:
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
def _held(dispatcher: Any, signature: Any) -> Iterator[None]:
    """No other process compiles the signature in the block, unless one did for longer than PATIENCE, or cannot be seen."""
    cache, code = dispatcher._cache, dispatcher.py_func.__code__
    asked = f"{cache._impl.filename_base} {code.co_qualname} {signature}"
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


def _finalize_with_own_copies(library: CPUCodeLibrary) -> None:
    """Have a kernel call its own copies of its helpers, so that it runs the same machine code compiled and cached.

    numba compiles the body of a parallel loop, and every helper that is not inlined, twice: once by itself, and once more
    within the kernel that calls it, where it is optimized again. Both copies have the same name. The process that compiles
    them runs the first copy and saves the second for later processes. Where the optimizer may fuse or reorder
    floating-point operations, the two copies differ in their last bits. So the second copy is made private to its kernel,
    and is the one that runs from the start. numba's reference counting (NRT_...), which it finds by name, stays shared.
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
