"""What the stores of matrices, models and sums keep: whatever the latest evaluated runs or a publication used.

Runs that failed, tunes and sweeps do not count among them, so that no night's fits go because somebody tuned a model.
What a sweep fitted is kept until the next run has published, so that a sweep that was stopped goes on where it was; a
tune keeps no fits.
"""

import logging

import sql
from tasks.stores import fits, grams, manifest, publications, warehouse
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

RUNS_KEPT = 3


def tidy(home: Home, runs: int = RUNS_KEPT) -> int:
    """Delete what neither the run that is going on, nor the latest `runs` evaluated ones, nor a publication uses.

    The latest are those that were recorded last, whatever the clock said.

    Returns:
        How many folders were deleted.
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
    deleted += grams.drop_others(home, used)
    if deleted:
        logger.info(
            "%d folders of matrices, models and sums that the latest %d evaluated runs did not use were deleted",
            deleted,
            runs,
        )
    return deleted
