"""Digests of the source code that a model's fit, or a stage's result, depends on. The source is read as bytes.

A model depends on its family (a package or module of `models/`) and on the modules that all families share. No family
imports another, and none imports `generator` or `registry` (`tests/test_imports.py`). A stage's module depends on
itself and, whatever it imports, on all of `models/`.
"""

import functools
import hashlib
import inspect
from pathlib import Path

from oneclass.models import base
from oneclass.models.base import Model
from oneclass.models.numba_cache import PACKAGE, digest_of

SHARED = {
    "__init__", "attributes", "base", "components", "degrees", "derived_settings", "distributed", "evaluation",
    "fingerprint", "fit_options", "item_weights", "memory_estimates", "model_files", "negatives", "numba_cache",
    "numerics", "own_model", "progress", "settings",
}  # fmt: skip


@functools.cache
def fingerprint_model(model: type[Model], package: Path = PACKAGE) -> str:
    """Return the digest of the source in `models/` that an estimator depends on, and of its own file if that is
    outside.
    """
    inside = model.__module__.removeprefix(f"{base.__package__}.")
    if inside == model.__module__:
        return _with_file(Path(inspect.getfile(model)), _source_digest(package, SHARED))
    return _source_digest(package, SHARED | {inside.partition(".")[0]})


def fingerprint_file(file: Path) -> str:
    """Return the digest of a file and of all of `models/`."""
    return _with_file(file, _digest_models())


@functools.cache
def _digest_models() -> str:
    return digest_of(PACKAGE.rglob("*.py"), PACKAGE)


def _with_file(file: Path, digest: str) -> str:
    return hashlib.sha256(f"{file.name} {digest}\n".encode() + file.read_bytes()).hexdigest()[:16]


def _source_digest(package: Path, names: set[str]) -> str:
    """Return the digest of the source of these packages and modules."""
    files = [file for file in package.rglob("*.py") if file.relative_to(package).parts[0].removesuffix(".py") in names]
    return digest_of(files, package)
