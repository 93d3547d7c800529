"""Row blocks of a split's training matrix: runs of users, each with its own sha256 in the record of the matrices.

In a CSR matrix the rows of a run of users are one stretch of each of the three arrays. So a worker that needs some users maps
and checks their row blocks alone: in the files of a folder that it sees, or, by URL, as ranges of bytes that it keeps in its
cache.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from models.user_blocks import cuts
from tasks.stores import manifest, remote
from tasks.stores.home import Home

EDGES = 1 << 22  # of a row block, about
ARRAYS = "train_indptr", "train_indices", "train_counts"


def described(folder: Path, indptr: np.ndarray) -> dict[str, Any]:
    """The row blocks of a matrix whose arrays lie in a folder, for its record.

    Returns:
        `users` and `edges`: where each block begins, and the end of the last; `arrays`: of each the type of its numbers, the
        bytes before the first of them, and the sha256 of each block's stretch.
    """
    users = [0, *(end for _, end in cuts(indptr, 1 + int(indptr[-1]) // EDGES))] if len(indptr) > 1 else [0]
    found: dict[str, Any] = {"users": users, "edges": [int(indptr[user]) for user in users], "arrays": {}}
    for name in ARRAYS:
        file = folder / f"{name}.npy"
        array = np.load(file, mmap_mode="r", allow_pickle=False)
        header = file.stat().st_size - array.nbytes
        of_array = {"dtype": array.dtype.str, "header": header}
        digests = [
            manifest.sha256_of(file, *_stretch(found | {"arrays": {name: of_array}}, name, number))
            for number in range(len(users) - 1)
        ]
        found["arrays"][name] = of_array | {"sha256": digests}
    return found


def read(home: Home, digest: str, record: str, first: int, end: int) -> csr_matrix | None:
    """Rows [first, end) of the training matrix of that digest; None where its record names no row blocks.

    Args:
        first, end: at least one row.
        record: the name of the matrices' record.

    Raises:
        Damaged: a row block is not what was written.
    """
    facts = _facts(home, digest, record)
    rows = facts.get("rows")
    if rows is None:
        return None
    starts = np.array(rows["users"])
    blocks = range(int(np.searchsorted(starts, first, "right")) - 1, int(np.searchsorted(starts, end)))
    indptr, indices, counts = (
        np.concatenate([_array(home, digest, record, rows, name, number) for number in blocks]) for name in ARRAYS
    )
    users, edges = rows["users"][blocks.start], rows["edges"][blocks.start]
    indptr = np.append(indptr, indptr.dtype.type(rows["edges"][blocks.stop]))[first - users : end - users + 1]
    own = slice(int(indptr[0]) - edges, int(indptr[-1]) - edges)
    found = csr_matrix((end - first, facts["shape"][1]), dtype=counts.dtype)
    found.data, found.indices, found.indptr = counts[own], indices[own], indptr - indptr[0]
    return found


def _facts(home: Home, digest: str, record: str) -> dict[str, Any]:
    folder = home.matrices / digest
    if not _is_away(home, digest):
        return manifest.facts(folder, record)
    kept = _kept(home, digest) / record
    if not kept.exists():
        _fetch(home, folder / record, 0, None, kept)
    return manifest.facts(kept.parent, record)


def _array(home: Home, digest: str, record: str, rows: Mapping[str, Any], name: str, number: int) -> np.ndarray:
    """A block's stretch of an array, memory-mapped."""
    about, (start, length) = rows["arrays"][name], _stretch(rows, name, number)
    if length == 0:
        return np.empty(0, about["dtype"])
    folder = home.matrices / digest
    file, away = folder / f"{name}.npy", _is_away(home, digest)
    if away:
        kept = _kept(home, digest) / f"{name}-{number}"
        if not kept.exists():
            _fetch(home, file, start, start + length, kept)
        file, start = kept, 0
    try:
        is_whole = manifest.sha256_of(file, start, length) == about["sha256"][number]
    except OSError as error:
        raise manifest.Damaged(f"{file}: cannot be read ({error.strerror or error})") from error
    if not is_whole and away:
        file.unlink()
        remote.discard(home, folder, record)
        raise manifest.Damaged(f"{remote.absent(home, folder)} (row block {number} of {name}.npy is damaged)")
    if not is_whole:
        raise manifest.Damaged(f"{file}: is damaged, for row block {number} has not the sha256 that was noted")
    return np.memmap(file, about["dtype"], "r", start, length // np.dtype(about["dtype"]).itemsize)


def _is_away(home: Home, digest: str) -> bool:
    """Whether the matrices are at the home's URL alone."""
    return home.store is not None and not (home.matrices / digest).exists()


def _fetch(home: Home, place: Path, start: int, end: int | None, target: Path) -> None:
    try:
        remote.fetch_stretch(home, place, start, end, target)
    except FileNotFoundError as error:
        raise manifest.Damaged(remote.absent(home, place.parent)) from error


def cached(home: Home) -> list[Path]:
    """Of each matrix the folder in which a worker's cache has row blocks of it."""
    return list(_kept(home, "").glob("*"))


def _kept(home: Home, digest: str) -> Path:
    """Where a worker's cache has row blocks."""
    return home.spill / "rows" / digest


def _stretch(rows: Mapping[str, Any], name: str, number: int) -> tuple[int, int]:
    """(start, length) in bytes of a block's part of the file of an array."""
    about = rows["arrays"][name]
    size = np.dtype(about["dtype"]).itemsize
    first, end = rows["users" if name == "train_indptr" else "edges"][number : number + 2]
    return about["header"] + first * size, (end - first) * size
