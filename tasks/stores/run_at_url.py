"""What of a run that goes on lies at the URL of its stores: a mark by which workers know the place, and users of fits by blocks.

It lies below `<url>/<dataset>/spill/`, which the next run on the home clears.
"""

import contextlib
import io
import logging
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from models.fitting import Shelves
from tasks.errors import InputError, StoreLost
from tasks.stores import manifest, urls
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

SPILL = "spill"


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


def shelves(home: Home) -> Shelves:
    """For fits by blocks: each has a folder of its own at the URL while it goes on."""
    return partial(_shelf, home)


@contextlib.contextmanager
def _shelf(home: Home, name: str) -> Iterator["Shelf"]:
    shelf = Shelf(home, f"{SPILL}/{name}-{uuid.uuid4().hex}")
    try:
        yield shelf
    finally:
        try:
            with urls.reached(home) as (system, path):
                urls.delete(system, system.find(f"{path}/{shelf.place}"))
        except (FileNotFoundError, StoreLost) as error:
            logger.warning("%s: is left there, until the next run: %s", urls.of(home, shelf.place), error)


@dataclass(frozen=True)
class Shelf:
    """A shelf (`models.fitting.Shelf`) at the URL. NumPy's format has a checksum of each array, which reading checks."""

    home: Home
    place: str

    def read(self, name: str) -> dict[str, np.ndarray]:
        """As in `models.fitting.Shelf`.

        Raises:
            Damaged: it is not what was written.
        """
        url = urls.of(self.home, f"{self.place}/{name}.npz")
        try:
            with urls.reached(self.home) as (system, path):
                found = system.cat_file(f"{path}/{self.place}/{name}.npz")
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{url}: not there; nobody may delete there while a run goes on") from error
        try:
            with np.load(io.BytesIO(found), allow_pickle=False) as arrays:
                return dict(arrays)
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise manifest.Damaged(f"{url}: is damaged ({error}); the same command begins this fit again") from error

    def write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """As in `models.fitting.Shelf`."""
        made = io.BytesIO()
        np.savez(made, **arrays)
        try:
            with urls.reached(self.home) as (system, path):
                system.pipe_file(f"{path}/{self.place}/{name}.npz", made.getvalue())
        except FileNotFoundError as error:  # the bucket
            raise StoreLost(urls.lost(self.home, error)) from error

    def remove(self, name: str) -> None:
        """As in `models.fitting.Shelf`."""
        with contextlib.suppress(FileNotFoundError), urls.reached(self.home) as (system, path):
            system.rm_file(f"{path}/{self.place}/{name}.npz")
