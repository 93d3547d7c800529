"""What the stores of matrices and models keep: whatever the latest runs used, and nothing half written."""

import json
import logging
import shutil
from pathlib import Path

import sql
from tasks.stores import warehouse
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

RUNS_KEPT = 3


def tidy(home: Home, runs: int = RUNS_KEPT) -> int:
    """Delete the fits and matrices that none of the latest `runs` runs used; the number of folders deleted."""
    with warehouse.connect(home, read_only=True) as connection:
        kept = set(connection.execute(sql.statement("train/kept_fits"), {"runs": runs}).fetchall())
    used, deleted = set(), 0
    for folder in home.models.glob("*/*"):
        of_fit = _matrices_of(folder) if (folder.parent.name, folder.name) in kept else None
        if of_fit:
            used.add(of_fit)
        else:
            shutil.rmtree(folder)
            deleted += 1
    for folder in home.matrices.glob("*"):
        if folder.name not in used:
            shutil.rmtree(folder)
            deleted += 1
    if deleted:
        logger.info("%d folders of matrices and models that the latest %d runs did not use were deleted", deleted, runs)
    return deleted


def _matrices_of(folder: Path) -> str | None:
    """Digest of the matrices that a fit is of; None where the fit is damaged, and would be made anew."""
    try:
        return json.loads((folder / "fit.json").read_text())["matrices"]
    except (OSError, ValueError, KeyError):
        return None
