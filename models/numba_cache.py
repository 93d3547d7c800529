"""Caching of compiled kernels, so that machine code of another source is never used.

numba checks only the file of a kernel, not the helpers in other files that are compiled into it. Here all kernels of
`models/` lie in a folder that is named by the digest of its source files. And numba's index of numbered files names
other machine code after two processes saved at once, or one was killed: here each signature has a file with a checksum.
"""

import atexit
import contextlib
import functools
import hashlib
import os
import pickle
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import numba
from llvmlite.binding import Linkage
from numba.core import caching
from numba.core.codegen import CPUCodeLibrary

PACKAGE = Path(__file__).resolve().parent
FALLBACKS = "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,ZipCacheLocator"
_CacheFile: Any = caching.IndexDataCacheFile  # Any: methods of it are replaced, which a type checker refuses
_CodeLibrary: Any = CPUCodeLibrary
_finalize = _CodeLibrary._finalize_final_module


def install() -> None:
    """Make numba use this cache for kernels declared after the call, unless the user has set locators."""
    _CacheFile.load, _CacheFile.save = _load, _save
    _CodeLibrary._finalize_final_module = _finalize_with_own_copies
    if not os.environ.get("NUMBA_CACHE_LOCATOR_CLASSES"):
        locators = f"{__name__}.{ModelsLocator.__name__},{FALLBACKS}"
        numba.config.CACHE_LOCATOR_CLASSES = locators  # pyright: ignore[reportAttributeAccessIssue]


def digest_of(files: Iterable[Path], package: Path) -> str:
    """Return the digest of the relative paths and contents of files in a package."""
    digest = hashlib.sha256()
    for name, file in sorted((file.relative_to(package).as_posix(), file) for file in files):
        digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


class ModelsLocator(caching.UserProvidedCacheLocator):
    """Locates the cache of one kernel."""

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
        """Return the name of the folder, which has the digest of the source."""
        return folder().name.encode()

    def get_disambiguator(self) -> str:
        """Return a name that distinguishes kernels of equal names, in one file or in files of equal names."""
        return f"{self._module}.{self._lineno}"


@functools.cache
def folder() -> Path:
    """Return the folder of the kernels, or a temporary one if it is not writable."""
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    named = os.environ.get("NUMBA_CACHE_DIR") or Path(user, "oneclass", "numba")
    cache = Path(named, f"models-{digest_of(PACKAGE.rglob('*.py'), PACKAGE)}")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=cache).close()
    except OSError:
        cache = Path(tempfile.mkdtemp(prefix="oneclass-numba-"))
        atexit.register(shutil.rmtree, cache, ignore_errors=True)
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


def _finalize_with_own_copies(library: Any) -> None:
    """Make a kernel call its own copies of its helpers, so that it runs the same machine code compiled and cached.

    numba compiles the body of a parallel loop, and every helper that is not inlined, by itself and once more, with
    other optimizations, within the kernel that calls it, under one name. The process that compiles them runs the first
    copy and saves the second. Where the optimizer may fuse or reorder floating-point operations, they differ in their
    last bits. So the second is made private to its kernel and runs from the start. numba's reference counting
    (NRT_...), which it finds by name, stays shared.
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
