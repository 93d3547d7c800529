"""Garbage collection of stored matrices and fits: keep what the latest evaluated runs or a publication used.

Failed runs and tunes do not count, so that tuning never evicts a night's fits; a tune keeps no fits. The home's
URL, if it has one, keeps what the home keeps, and a worker's cache only matrices at the URL.
"""

import logging
from pathlib import Path

from oneclass import sql
from oneclass.tasks.stores import checksums, fits, publications, remote, warehouse
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
    remote.delete_others(
        home, {f"models/{fit.model}/{fit.digest}" for fit in remaining} | {f"matrices/{digest}" for digest in used}
    )
    if deleted:
        logger.info(
            "%d folders of matrices and models that the latest %d evaluated runs did not use were deleted",
            deleted,
            runs,
        )
    return deleted


def evict_worker_cache(home: Home) -> None:
    """Delete from a worker's cache the matrices that are no longer at its URL, with their fits, and unfinished fits.

    A fit stays while its matrices do, since it may not be uploaded yet.

    Raises:
        SharedStoreUnavailable: the URL is not readable.
    """
    used = {folder.rpartition("/")[2] for folder in remote.list_folders(home) if folder.startswith("matrices/")}
    for folder in home.matrices.glob("*"):
        if folder.name not in used:
            checksums.remove_path(folder)
    for folder in home.models.glob("*/*"):
        if _fit_matrices(folder) not in used:
            checksums.remove_path(folder)


def _fit_matrices(fit: Path) -> str | None:
    try:
        return checksums.load_facts(fit, fits.RECORD_FILE)["matrices"]
    except checksums.DamagedFile:
        return None
