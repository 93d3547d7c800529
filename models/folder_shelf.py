"""A shelf of a fit by blocks (`models.fitting.Shelf`) that is a folder, which all workers see under the same path."""

import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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
