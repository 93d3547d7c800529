"""Which source a model's fit, or a stage's result, depends on, in one short digest. The source is read as bytes.

A model depends on its family's room (a package of `models/`, or a module beside them) and on all that families share.
No family imports another, and none imports `generator` or `catalogue` (`tests/test_rooms.py`). A stage's module depends
on itself and, whatever it imports, on all of `models/`.
"""

import functools
import hashlib
import inspect
from pathlib import Path

from models import numba_cache
from models.base import Model
from models.numba_cache import PACKAGE

SHARED = {"degrees", "evaluation", "negatives", "numerics"} | {  # packages, and modules beside them
    *("__init__", "base", "fingerprint", "fitting", "folder_shelf", "gram_runs", "keeping", "memory", "numba_cache"),
    *("search_space", "settings", "user_blocks"),
}


@functools.cache
def of_model(model: type[Model], package: Path = PACKAGE) -> str:
    """Digest of what an estimator's class depends on in `models/`, and of its own file where that is elsewhere."""
    place = model.__module__.split(".")
    if place[0] != PACKAGE.name:
        return _with_file(Path(inspect.getfile(model)), _digest(package, SHARED))
    return _digest(package, SHARED | {place[1]})


def of_file(file: Path) -> str:
    """Digest of a file and of all of `models/`."""
    return _with_file(file, numba_cache.source_digest())


def _with_file(file: Path, digest: str) -> str:
    return hashlib.sha256(f"{file.name} {digest}\n".encode() + file.read_bytes()).hexdigest()[:16]


def _digest(package: Path, rooms: set[str]) -> str:
    """Digest of the source of these rooms."""
    files = [file for file in package.rglob("*.py") if file.relative_to(package).parts[0].removesuffix(".py") in rooms]
    return numba_cache.digest_of(files, package)
