"""The shelf of a fit by blocks (`models.fitting.Shelf`) at the URL of a home's stores, for workers that share no folder.

Arrays by name are one file, whose format has a checksum of each. Flat arrays are large: a process puts them there from
files, and gets those that it needs into a folder of its own, once, where it maps them. Beside the file of one lies a list
with its sha256, put last. The list of an array that was joined names the files of its parts, which whoever gets it writes
one behind the other: nothing is joined at the URL.
"""

import contextlib
import hashlib
import io
import json
import shutil
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.folder_shelf import mapped, written
from tasks.errors import StoreLost
from tasks.stores import manifest, remote, urls
from tasks.stores.home import Home

SHELVES = "shelves"  # in a process's own `spill`
AT_ONCE = 1 << 25  # bytes of a flat array that are sent or got at once


@dataclass(frozen=True)
class Shelf:
    """A shelf in a folder of its own at the URL.

    Attributes:
        place: the folder, in the data set's there.
    """

    home: Home
    place: str

    def read(self, name: str) -> dict[str, np.ndarray]:
        """As in `models.fitting.Shelf`.

        Raises:
            Damaged: it is not what was written.
        """
        found = self._got(f"{name}.npz")
        try:
            with np.load(io.BytesIO(found), allow_pickle=False) as arrays:
                return dict(arrays)
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise self._damaged(f"{name}.npz", error) from error

    def write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """As in `models.fitting.Shelf`."""
        made = io.BytesIO()
        np.savez(made, **arrays)
        self._put(f"{name}.npz", made.getvalue())

    def remove(self, name: str) -> None:
        """As in `models.fitting.Shelf`."""
        self._delete(f"{name}.npz")

    def flat(self, name: str) -> np.ndarray:
        """As in `models.fitting.Shelf`; from this process's folder, if it has it.

        Raises:
            Damaged: it is not what was written.
        """
        file = self._own() / name
        if not file.exists():
            half_made = file.with_name(f"partial-{uuid.uuid4().hex}")
            for part, digest in self._listed(name).items():
                self._append(part, digest, half_made)
            half_made.rename(file)
        return mapped(file)

    def write_flat(self, pieces: Iterable[Mapping[str, np.ndarray]]) -> None:
        """As in `models.fitting.Shelf`."""
        for name, file in written(self._own(), pieces).items():
            with file.open("rb") as source:
                digest = hashlib.file_digest(source, "sha256").hexdigest()
                source.seek(0)
                with self._reached(writing=True) as (system, path), system.open(f"{path}/{name}", "wb", AT_ONCE) as to:
                    shutil.copyfileobj(source, to, AT_ONCE)
            self._list(name, {name: digest})
            file.unlink()

    def join(self, name: str, parts: Sequence[str]) -> None:
        """As in `models.fitting.Shelf`. The files of the parts stay."""
        self._list(name, {file: digest for part in parts for file, digest in self._listed(part).items()})
        for part in parts:
            self._delete(f"{part}.json")

    def _list(self, name: str, files: Mapping[str, str]) -> None:
        """Put the list of a flat array: the sha256 of each file of which it is made, in their order."""
        self._put(f"{name}.json", json.dumps(files).encode())

    def _listed(self, name: str) -> dict[str, str]:
        try:
            return dict(json.loads(self._got(f"{name}.json")))
        except (ValueError, TypeError) as error:
            raise self._damaged(f"{name}.json", error) from error

    def _append(self, name: str, digest: str, target: Path) -> None:
        """Get a file to the end of another, and check it."""
        found = hashlib.sha256()
        with (
            self._reached(name) as (system, path),
            system.open(f"{path}/{name}", "rb", AT_ONCE, cache_type="none") as there,
            target.open("ab") as file,
        ):
            while piece := there.read(AT_ONCE):
                found.update(piece)
                file.write(piece)
        if found.hexdigest() != digest:
            target.unlink()
            raise self._damaged(name, "its sha256 is not the one that was noted")

    def _got(self, file: str) -> bytes:
        with self._reached(file) as (system, path):
            return system.cat_file(f"{path}/{file}")

    def _put(self, file: str, content: bytes) -> None:
        with self._reached(writing=True) as (system, path):
            system.pipe_file(f"{path}/{file}", content)

    def _delete(self, file: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._reached(file) as (system, path):
            system.rm_file(f"{path}/{file}")

    @contextlib.contextmanager
    def _reached(self, file: str = "", *, writing: bool = False) -> Iterator[tuple]:
        """The file system, and the path of the shelf there.

        Raises:
            FileNotFoundError: the file is not there.
            StoreLost: the server cannot be reached, or refuses, or the bucket is not there.
        """
        try:
            with urls.reached(self.home) as (system, path):
                yield system, f"{path}/{self.place}"
        except FileNotFoundError as error:
            if writing:
                raise StoreLost(urls.lost(self.home, error)) from error
            url = urls.of(self.home, f"{self.place}/{file}")
            raise FileNotFoundError(f"{url}: not there; nobody may delete there while a run goes on") from error

    def _damaged(self, file: str, why: BaseException | str) -> manifest.Damaged:
        url = urls.of(self.home, f"{self.place}/{file}")
        return manifest.Damaged(f"{url}: is damaged ({why}); the same command begins this fit again")

    def _own(self) -> Path:
        """This process's folder for flat arrays of the fit."""
        folder = own_folder(self.home, self.place)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def own_folder(home: Home, place: str) -> Path:
    """Where this process has flat arrays of a shelf."""
    return remote.here(home).spill / SHELVES / place.rpartition("/")[2]


def forget(home: Home, place: str) -> None:
    """Delete what this process has of a shelf."""
    shutil.rmtree(own_folder(home, place), ignore_errors=True)


def forget_all(home: Home) -> None:
    """Delete what this process has of any shelf."""
    shutil.rmtree(home.spill / SHELVES, ignore_errors=True)
