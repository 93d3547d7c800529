"""Checkpoints: the state of a long fit in one file, from which an interrupted fit goes on.

The file is numpy's `.npz`, read without pickle. It names its fit by a digest of settings, seed and data, and has a
sha256 of its arrays, without which no fit goes on from it.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

logger = logging.getLogger(__name__)

CHECKPOINT_FILE = "checkpoint.npz"


def checkpoint_key(description: Mapping[str, Any], *matrices: csr_matrix) -> str:
    """Return the digest that identifies a fit, from its description (plain data) and edges."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for matrix in matrices:
        digest.update(f"{matrix.shape}".encode())
        for array in (matrix.indptr, matrix.indices):
            digest.update(np.ascontiguousarray(array, dtype=np.int64).data)
    return digest.hexdigest()


def write_checkpoint(folder: Path, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Replace the folder's checkpoint atomically; creates the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"partial-{CHECKPOINT_FILE}"
    with partial.open("wb") as file:
        np.savez(file, allow_pickle=False, key=np.array(key), sha256=np.array(digest_arrays(arrays)), **arrays)
    os.replace(partial, folder / CHECKPOINT_FILE)


def read_checkpoint(folder: Path, key: str) -> dict[str, np.ndarray] | None:
    """Read the arrays of the checkpoint; None if it is absent or of another fit.

    A damaged file is deleted, with a warning.
    """
    path = folder / CHECKPOINT_FILE
    if not os.path.lexists(path):
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = dict(stored)
        owner, digest = str(arrays.pop("key")), str(arrays.pop("sha256"))
        if digest != digest_arrays(arrays):
            raise ValueError("not the checksum of these arrays")
    except Exception:  # noqa: BLE001  (damaged zip files raise errors of many kinds)
        logger.warning("%s: is damaged, or of an earlier version of this program; the fit begins anew", path)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        return None
    return arrays if owner == key else None


def remove_checkpoint(folder: Path) -> None:
    """Delete the checkpoint, and the folder if it is then empty."""
    (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def digest_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the digest of named arrays, with their types and shapes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()
