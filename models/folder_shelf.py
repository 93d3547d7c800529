"""A shelf of a fit by blocks (`models.fitting.Shelf`) that is a folder, which all workers see under the same path.

Arrays by name lie in NumPy's `.npz`. Flat ones are mapped, not read: each is a file of its numbers and nothing else.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.numerics.products import read_only

JOINED = 1 << 24  # bytes of files that are joined at a time
ABSENT = "not there; give a `scratch` that every worker sees, and nobody tidies"


@dataclass(frozen=True)
class Folder:
    """A shelf (`models.fitting.Shelf`) that is a folder."""

    path: Path

    def read(self, name: str) -> dict[str, np.ndarray]:
        """As in `Shelf`."""
        file = self._file(name)
        if not file.exists():
            raise FileNotFoundError(f"{file}: {ABSENT}")
        with np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)

    def write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """As in `Shelf`."""
        half_made = self.path / f"partial-{uuid.uuid4().hex}.npz"
        np.savez(half_made, **arrays)
        os.replace(half_made, self._file(name))

    def remove(self, name: str) -> None:
        """As in `Shelf`."""
        self._file(name).unlink(missing_ok=True)

    def flat(self, name: str) -> np.ndarray:
        """As in `Shelf`."""
        file = self.path / name
        if not file.exists():
            raise FileNotFoundError(f"{file}: {ABSENT}")
        return mapped(file)

    def write_flat(self, pieces: Iterable[Mapping[str, np.ndarray]]) -> None:
        """As in `Shelf`."""
        for name, file in written(self.path, pieces).items():
            os.replace(file, self.path / name)

    def join(self, name: str, parts: Sequence[str]) -> None:
        """As in `Shelf`."""
        with (self.path / name).open("wb") as whole:
            for part in parts:
                with (self.path / part).open("rb") as file:
                    shutil.copyfileobj(file, whole, JOINED)
                (self.path / part).unlink()

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.npz"


@contextmanager
def folder_in(scratch: Path | None, name: str) -> Iterator[Folder]:
    """A folder for one fit of the model of that name, in `scratch` or among the temporary folders."""
    if scratch:
        scratch = scratch.resolve()
        scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=scratch) as folder:
        yield Folder(Path(folder))


def mapped(file: Path) -> np.ndarray:
    """A flat array, memory-mapped and read-only; the file's name ends in its type, such as `sums.float64`."""
    dtype = np.dtype(file.name.rpartition(".")[2])
    return read_only(np.memmap(file, dtype, mode="r") if file.stat().st_size else np.zeros(0, dtype), dtype)


def written(folder: Path, pieces: Iterable[Mapping[str, np.ndarray]]) -> dict[str, Path]:
    """Files with flat arrays, by the arrays' names: of each name the pieces one after the other, whole once this returns."""
    half_made: dict[str, tuple[Path, Any]] = {}
    with ExitStack() as files:
        for piece in pieces:
            for name, part in piece.items():
                if name not in half_made:
                    file = folder / f"partial-{uuid.uuid4().hex}"
                    half_made[name] = file, files.enter_context(file.open("wb"))
                part.tofile(half_made[name][1])
    return {name: file for name, (file, _) in half_made.items()}
