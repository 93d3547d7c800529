"""Checkpoints: the state of a long fit in one file, from which an interrupted fit goes on.

The file is numpy's `.npz`, read without pickle. It names its fit by a digest of settings, seed and data.
"""

import contextlib
import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

NAME = "checkpoint.npz"


def fit_key(description: Mapping[str, Any], *matrices: csr_matrix) -> str:
    """The digest that names a fit: equal for equal descriptions (plain data) and equal edges."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for matrix in matrices:
        digest.update(f"{matrix.shape}".encode())
        for array in (matrix.indptr, matrix.indices):
            digest.update(np.ascontiguousarray(array, dtype=np.int64).data)
    return digest.hexdigest()


def write(folder: Path, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Replace the folder's checkpoint, completely or not at all; creates the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"partial-{NAME}"
    with partial.open("wb") as file:
        np.savez(file, key=np.array(key), **arrays)
    os.replace(partial, folder / NAME)


def read(folder: Path, key: str) -> dict[str, np.ndarray] | None:
    """The arrays that `write` was given; None if there is no file, if it is of another fit, or if it is damaged."""
    try:
        with (folder / NAME).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = dict(stored)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    return arrays if str(arrays.pop("key", "")) == key else None


def remove(folder: Path) -> None:
    """Delete the checkpoint, and the folder if it is then empty."""
    (folder / NAME).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()
