"""Estimators and their kernels: arrays and sparse matrices in, arrays out.

No Prefect, no DuckDB, no files but a model's own saved form. numba is set up here, before any kernel is
declared.
"""

import hashlib
import os
import tempfile
from pathlib import Path

import numba


def source_fingerprint() -> str:
    """Digest of every source file of this package: what a compiled kernel or a kept fit depends on."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _kernel_cache() -> str:
    """A folder for compiled kernels that is new with every edit of a source file of this package.

    numba's own cache looks only at the file that a kernel stands in, so that an edited helper in another
    file would leave stale machine code in use.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oneclass" / "numba"
    folder = root / source_fingerprint()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        usable = os.access(folder, os.W_OK)
    except OSError:
        usable = False
    return str(folder) if usable else tempfile.mkdtemp(prefix="oneclass-numba-")


if not os.environ.get("NUMBA_CACHE_DIR"):
    numba.config.CACHE_DIR = _kernel_cache()
