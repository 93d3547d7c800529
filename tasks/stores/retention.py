"""What the stores of matrices and models keep: whatever the latest runs or a publication used, nothing half written."""

import logging

import sql
from tasks.stores import fits, manifest, publications, warehouse
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

RUNS_KEPT = 3


def tidy(home: Home, runs: int = RUNS_KEPT) -> int:
    """Delete the fits and matrices that none of the latest `runs` runs used; the number of folders deleted.

    The latest are those that were recorded last, whatever the clock said. Fits that readers of a publication may ask
    stay as long as it does.
    """
    with warehouse.connect(home, read_only=True) as connection:
        kept = set(connection.execute(sql.statement("train/kept_fits"), {"runs": runs}).fetchall())
    kept |= publications.fits_in_use(home)
    staying, deleted = fits.drop_others(home, kept)
    used = {fit.matrices for fit in staying}
    for folder in home.matrices.glob("*"):
        if folder.name not in used:
            manifest.remove(folder)
            deleted += 1
    if deleted:
        logger.info("%d folders of matrices and models that the latest %d runs did not use were deleted", deleted, runs)
    return deleted
