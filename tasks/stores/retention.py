"""What the stores of matrices, models and sums keep: whatever the latest evaluated runs or a publication used.

Runs that failed, tunes and sweeps do not count among them, so that no night's fits go because somebody tuned a model.
What a sweep fitted is kept until the next run has published, so that a sweep that was stopped goes on where it was; a
tune keeps no fits. The URL of the home, if it has one, keeps what the home keeps, and a worker's cache what the URL does.
"""

import logging

import sql
from tasks.stores import fits, grams, manifest, publications, remote, row_blocks, warehouse
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
    remote.drop_others(
        home, {f"models/{fit.model}/{fit.digest}" for fit in staying} | {f"matrices/{digest}" for digest in used}
    )
    if deleted:
        logger.info(
            "%d folders of matrices, models and sums that the latest %d evaluated runs did not use were deleted",
            deleted,
            runs,
        )
    return deleted


def tidy_cache(home: Home) -> None:
    """Delete from a worker's cache what its URL has no more, and row blocks, sums and unfinished fits of earlier runs with it.

    Raises:
        StoreLost: the URL cannot be read.
    """
    there = remote.places(home)
    folders = [*home.matrices.glob("*"), *home.models.glob("*/*")]
    for folder in [one for one in folders if one.relative_to(home.folder).as_posix() not in there]:
        manifest.remove(folder)
    used = {place.rpartition("/")[2] for place in there if place.startswith("matrices/")}
    grams.drop_others(home, used)
    for folder in row_blocks.cached(home):
        if folder.name not in used:
            manifest.remove(folder)
