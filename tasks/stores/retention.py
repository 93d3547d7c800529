"""What the stores of matrices, models and sums keep: whatever the latest evaluated runs or a publication used.

Runs that failed, tunes and sweeps do not count among them, so that no night's fits go because somebody tuned a model.
What a sweep fitted is kept until the next run has published, so that a sweep that was stopped goes on where it was; a
tune keeps no fits. The URL of the home, if it has one, keeps what the home keeps, and a worker's cache no matrices but those.
"""

import logging
from pathlib import Path

from oneclass import sql
from oneclass.tasks.stores import checksums, fits, publications, remote, warehouse
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

NUM_RETAINED_RUNS = 3


def collect_garbage(home: Home, runs: int = NUM_RETAINED_RUNS) -> int:
    """Delete what neither the run that is going on, nor the latest `runs` evaluated ones, nor a publication uses.

    The latest are those that were recorded last, whatever the clock said.

    Returns:
        How many folders were deleted.
    """
    with warehouse.open_warehouse(home, read_only=True) as connection:
        kept = set(connection.execute(sql.statement("train/kept_fits"), {"runs": runs}).fetchall())
    kept |= publications.list_used_fits(home)
    staying, deleted = fits.delete_other_fits(home, kept)
    used = {fit.matrices for fit in staying}
    for folder in home.matrices.glob("*"):
        if folder.name not in used:
            checksums.remove_path(folder)
            deleted += 1
    checksums.remove_path(home.folder / "sums")  # of a version that stored X'X
    remote.delete_others(
        home, {f"models/{fit.model}/{fit.digest}" for fit in staying} | {f"matrices/{digest}" for digest in used}
    )
    if deleted:
        logger.info(
            "%d folders of matrices and models that the latest %d evaluated runs did not use were deleted",
            deleted,
            runs,
        )
    return deleted


def evict_worker_cache(home: Home) -> None:
    """Delete from a worker's cache the matrices that its URL no longer has, with their fits and sums, and unfinished fits.

    A fit stays while its matrices are there: it may be one that could not be put there yet.

    Raises:
        StoreLost: the URL cannot be read.
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
