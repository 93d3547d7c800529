"""Scratch storage of a distributed fit (`models.fit_options.ScratchStore`) at the URL of a home's stores, for workers
without a shared folder.
"""

import contextlib
import io
import logging
import uuid
import zipfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass

import numpy as np

from oneclass.tasks.errors import SharedStoreUnavailable
from oneclass.tasks.stores import checksums, remote
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteScratch:
    """Scratch storage in a folder at the URL, one `.npz` a name, whose format has a checksum of each array.

    Attributes:
        folder: relative to the data set's folder at the URL.
    """

    home: Home
    folder: str

    def read(self, name: str) -> dict[str, np.ndarray]:
        """As in `models.fit_options.ScratchStore`.

        Raises:
            DamagedFile: it differs from what was written.
        """
        url = remote.url_of(self.home, f"{self.folder}/{name}.npz")
        try:
            with remote.open_store(self.home) as (system, path):
                content = system.cat_file(f"{path}/{self.folder}/{name}.npz")
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{url}: not there; nobody may delete there while a run goes on") from error
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise checksums.DamagedFile(
                f"{url}: is damaged ({error}); the same command begins this fit again"
            ) from error

    def write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """As in `models.fit_options.ScratchStore`.

        Raises:
            SharedStoreUnavailable: the URL cannot be written to.
        """
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **arrays)
        try:
            with remote.open_store(self.home) as (system, path):
                system.pipe_file(f"{path}/{self.folder}/{name}.npz", content.getvalue())
        except FileNotFoundError as error:
            raise SharedStoreUnavailable(remote.explain_failure(self.home, error)) from error

    def remove(self, name: str) -> None:
        """As in `models.fit_options.ScratchStore`."""
        with contextlib.suppress(FileNotFoundError), remote.open_store(self.home) as (system, path):
            system.rm_file(f"{path}/{self.folder}/{name}.npz")


@contextlib.contextmanager
def open_scratch(home: Home, name: str) -> Generator[RemoteScratch]:
    """Scratch storage for one fit of the model of that name, deleted at the end
    (`models.fit_options.ScratchFactory`).
    """
    scratch = RemoteScratch(home, f"{remote.SCRATCH}/{name}-{uuid.uuid4().hex}")
    try:
        yield scratch
    finally:
        try:
            with remote.open_store(home) as (system, path):
                remote.delete_files(system, system.find(f"{path}/{scratch.folder}"))
        except (FileNotFoundError, SharedStoreUnavailable) as error:
            url = remote.url_of(home, scratch.folder)
            logger.warning("%s: is left there until the next run deletes it: %s", url, error)
