"""Caching of compiled kernels, so that machine code of another source is never used.

numba's own cache checks only the file of a kernel, not the helpers in other files that are compiled into it. Here all
kernels of `models/` lie in `<cache>/models-<digest>/`, where the digest is that of every source file of `models/`. An
edit gives a new folder, and checkouts of equal source share one.

Faults of numba are worked around. Its index of numbered files names other machine code after two processes saved at
once, or one was killed, or a file was damaged: here each signature has a file with a checksum, and no index (`_load`).
A kernel would run other machine code just compiled than read from the cache (`_finalize_with_own_copies`).
"""

import atexit
import contextlib
import functools
import glob
import hashlib
import os
import pickle
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import numba
from llvmlite.binding import Linkage
from numba.core import caching
from numba.core.codegen import CPUCodeLibrary

PACKAGE = Path(__file__).resolve().parent
MAX_UNUSED_DAYS = 30  # a folder of another source is deleted after this many days without use
FALLBACKS = "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,ZipCacheLocator"
_CacheFile: Any = caching.IndexDataCacheFile  # Any: methods of it are replaced, which a type checker refuses
_CodeLibrary: Any = CPUCodeLibrary
_finalize = _CodeLibrary._finalize_final_module


def install() -> None:
    """Make numba use this cache for kernels declared after the call, unless the user has set locators."""
    _CacheFile.load, _CacheFile.save, _CacheFile.flush = _load, _save, _flush
    _CodeLibrary._finalize_final_module = _finalize_with_own_copies
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


class ModelsLocator(caching.UserProvidedCacheLocator):
    """Locates the cache of one kernel; numba tries the classes that `NUMBA_CACHE_LOCATOR_CLASSES` lists."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._py_file, self._cache_path = py_file, str(folder())
        self._module = Path(py_file).resolve().relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
        self._lineno = py_func.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Self | None:
        """Return the locator of a kernel if its file lies in `models/`, else None."""
        inside = os.path.exists(py_file) and Path(py_file).resolve().is_relative_to(PACKAGE)
        return cls(py_func, py_file) if inside else None

    def get_source_stamp(self) -> bytes:
        """Return the digest of the kernel's source."""
        return source_digest().encode()

    def get_disambiguator(self) -> str:
        """Return a name that distinguishes kernels of equal names, in one file or in files of equal names."""
        return f"{self._module}.{self._lineno}"


@functools.cache
def folder() -> Path:
    """Return the folder of the kernels, or a temporary one if it is not writable; deletes folders long unused."""
    named, user = os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = (Path(named) if named else Path(user, "oneclass", "numba")) / f"models-{source_digest()}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=cache).close()
        os.utime(cache)  # it is used today
    except OSError:
        temporary = Path(tempfile.mkdtemp(prefix="oneclass-numba-"))
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return temporary
    oldest = time.time() - MAX_UNUSED_DAYS * 24 * 3600
    for other in cache.parent.glob(f"models-{'[0-9a-f]' * 16}"):
        with contextlib.suppress(OSError):  # another process may be deleting it
            if other.stat().st_mtime < oldest:
                shutil.rmtree(other, ignore_errors=True)
    return cache


def _find_file(cache: Any, key: object) -> Path:
    """Return the path of one compiled signature of a kernel."""
    name = hashlib.sha256(repr((numba.__version__, key)).encode()).hexdigest()[:16]
    return Path(cache._cache_path) / f"{Path(cache._index_name).stem}.{name}.nbc"


def _load(cache: Any, key: object) -> Any:
    """Return what `_save` wrote; None if it is missing or damaged, or of another source, so that numba compiles."""
    with contextlib.suppress(OSError):
        checksum, content = (whole := _find_file(cache, key).read_bytes())[:32], whole[32:]
        if hashlib.sha256(content).digest() == checksum:
            made_for, data = pickle.loads(content)
            return data if made_for == (cache._source_stamp, key) else None
    return None


def _save(cache: Any, key: object, data: object) -> None:
    """Write the machine code of one signature: it appears whole, or not at all if the process is killed."""
    content, file = caching.dumps(((cache._source_stamp, key), data)), _find_file(cache, key)
    partial = file.with_suffix(f".{uuid.uuid4().hex[:16]}")
    partial.write_bytes(hashlib.sha256(content).digest() + content)
    partial.replace(file)


def _flush(cache: Any) -> None:
    """Delete every signature of a kernel, for `recompile`."""
    for file in Path(cache._cache_path).glob(f"{glob.escape(Path(cache._index_name).stem)}.*.nbc"):
        file.unlink(missing_ok=True)


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
