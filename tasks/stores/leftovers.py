"""What runs that were killed have left half made, removed by the next one before it begins."""

import logging
import os
import tempfile
import time
from pathlib import Path

from tasks.stores import manifest, publications
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

HALF_MADE = (
    "spill/*",
    "matrices/partial-*",
    "models/*/partial-*",
    "models/*/*/partial-*",
    ".demo-*",
    ".published-next",
    "report/.*.html",
    "report/.*.json",
    "report/figures/.*.svg",
)
"""Patterns in a data set's folder: what is made under such a name is moved or deleted by whoever made it."""
COMPILED = "oneclass-numba-*"
"""Kernels of a process that had nowhere else to keep them, in the system's folder of temporary files."""
HOURS_UNTOUCHED = 24  # a process may still be at work with them


def remove(home: Home) -> int:
    """Delete them; the number of files and folders that went.

    The caller holds the data set (`runs.exclusive`) and has the warehouse open for writing, so nobody else spills.
    """
    found = [path for pattern in HALF_MADE for path in home.folder.glob(pattern)]
    found += [*publications.unfinished(home), *_compiled(Path(tempfile.gettempdir()))]
    for path in found:
        manifest.remove(path)
    if found:
        logger.info("%d files and folders that runs before had left half made were deleted", len(found))
    return len(found)


def _compiled(folder: Path) -> list[Path]:
    oldest = time.time() - 3600 * HOURS_UNTOUCHED
    found = []
    for path in folder.glob(COMPILED):
        status = path.lstat()
        if status.st_uid == os.getuid() and status.st_mtime < oldest:
            found.append(path)
    return found
