"""What of a run that goes on lies at the URL of its stores: a mark by which workers know the place, and shelves of fits by blocks.

It lies below `<url>/<dataset>/spill/`, which the next run on the home clears.
"""

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator
from functools import partial

from models.fitting import Shelves
from tasks.errors import InputError, StoreLost
from tasks.stores import shelf_at_url, urls
from tasks.stores.home import Home
from tasks.stores.shelf_at_url import Shelf

logger = logging.getLogger(__name__)

SPILL = "spill"
Everywhere = Callable[..., None]  # of a function, the home and further arguments


def begin(home: Home, mark: str) -> None:
    """Begin a run: delete what an earlier one left unfinished at the URL, and leave a mark by which workers know the place.

    Raises:
        InputError: the URL cannot be written to.
    """
    try:
        with urls.reached(home) as (system, path):
            urls.delete(system, system.find(f"{path}/{SPILL}"))
            system.pipe_file(f"{path}/{SPILL}/{mark}", b"a run of oneclass goes on\n")
    except (FileNotFoundError, StoreLost) as error:
        raise InputError(f"--store {urls.lost(home, error.__cause__ or error)}") from error


def sees(home: Home, mark: str) -> bool:
    """Whether this process finds the mark of a run.

    Raises:
        OneclassError: the URL cannot be read.
    """
    with contextlib.suppress(FileNotFoundError), urls.reached(home) as (system, path):
        return bool(system.cat_file(f"{path}/{SPILL}/{mark}"))
    return False


def end(home: Home, mark: str) -> None:
    """Take the mark away, if the URL can still be reached."""
    with contextlib.suppress(FileNotFoundError, StoreLost), urls.reached(home) as (system, path):
        system.rm_file(f"{path}/{SPILL}/{mark}")


def shelves(home: Home, everywhere: Everywhere) -> Shelves:
    """For fits by blocks: each has a folder of its own at the URL while it goes on.

    Args:
        everywhere: has a function called by every worker that is there, for what they keep of it.
    """
    return partial(_shelf, home, everywhere)


@contextlib.contextmanager
def _shelf(home: Home, everywhere: Everywhere, name: str) -> Iterator[Shelf]:
    shelf = Shelf(home, f"{SPILL}/{name}-{uuid.uuid4().hex}")
    try:
        yield shelf
    finally:
        shelf_at_url.forget(home, shelf.place)
        everywhere(shelf_at_url.forget, home, shelf.place)
        try:
            with urls.reached(home) as (system, path):
                urls.delete(system, system.find(f"{path}/{shelf.place}"))
        except (FileNotFoundError, StoreLost) as error:
            logger.warning("%s: is left there, until the next run: %s", urls.of(home, shelf.place), error)
