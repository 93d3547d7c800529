"""Garbage collection of stored matrices and fits: keep what the latest evaluated runs or a publication used.

Failed runs and tunes do not count, so that tuning never evicts a night's fits; a tune keeps no fits.
"""

import logging

from oneclass import sql
from oneclass.tasks.stores import checksums, fits, publications, warehouse
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

NUM_RETAINED_RUNS = 3


def collect_garbage(home: Home, runs: int = NUM_RETAINED_RUNS) -> int:
    """Delete all matrices and fits except those of the current run, the latest `runs` evaluated runs, and the
    publications.

    The latest runs are those recorded last, whatever the clock said.

    Returns:
        The number of deleted folders.
    """
    with warehouse.open_warehouse(home, read_only=True) as connection:
        retained = set(connection.execute(sql.statement("train/retained_fits"), {"runs": runs}).fetchall())
    retained |= publications.list_used_fits(home)
    remaining, deleted = fits.delete_other_fits(home, retained)
    used = {fit.matrices for fit in remaining}
    for folder in home.matrices.glob("*"):
        if folder.name not in used:
            checksums.remove_path(folder)
            deleted += 1
    checksums.remove_path(home.folder / "sums")  # of a version that stored X'X
    if deleted:
        logger.info(
            "%d folders of matrices and models that the latest %d evaluated runs did not use were deleted",
            deleted,
            runs,
        )
    return deleted
