"""The store of sums: X' diag(w) X of a protocol's training edges in `<home>/<dataset>/sums/<digest>/`, memory-mapped.

The models that need a Gram matrix (`mrf_dense`, `mrf_sparse`, `slim`) get its sums from here, brought up to date by the rows
that changed since the run before (`models.numerics.gram_sums`), with the bits of sums from nothing. Of each protocol and
exponent the newest is kept. The digest is that of the matrices, the exponent and what made the sums; `sums.json`, written
last, has the sha256. Whatever is absent or damaged is made from nothing.
"""

import hashlib
import json
import logging
import os
import shutil
import uuid
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from models import fingerprint
from models.numerics import gram_sums
from tasks.stores import manifest, matrices
from tasks.stores.home import Home
from tasks.stores.matrices import SplitMatrices

logger = logging.getLogger(__name__)

RECORD = "sums.json"
ARRAY = "sums.npy"
MOST = 2 << 30  # bytes of the sums of one protocol and exponent: up to 23,169 items
WORTH = 8  # pairs of a user's items for each pair of items; with fewer, summing is as quick as reading and checking


def sums(
    home: Home, matrices_digest: str, interactions: csr_matrix, exponent: float, threads: int
) -> np.ndarray | None:
    """The sums of stored matrices (`models.fitting.GramSums`): read, or brought up to date, or made from nothing.

    Args:
        matrices_digest: of the split whose training matrix `interactions` is.

    Returns:
        float64 (items (items + 1) / 2,), memory-mapped; None where keeping them costs more than it saves, or too much
        room, or could not be done, which is said.
    """
    if not is_worth_keeping(interactions):
        return None
    facts = {"matrices": matrices_digest, "exponent": exponent, "made_by": _made_by()}
    folder = home.sums / hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    try:
        if os.path.lexists(folder):
            found = _read(folder)
            if found is not None:
                return found
            manifest.remove(folder)
        now = matrices.read(home, matrices_digest, parts=())
        facts["protocol"] = now.protocol
        others = _of_earlier_runs(home, facts)
        before = next((made for made in (_before(home, other, now) for other in others) if made), None)
        _make(folder, facts, interactions, threads, before)
        for other in others:
            manifest.remove(other)
    except OSError as error:
        logger.warning("the sums of X'X are not kept: %s", error)
        return None
    return _read(folder)


def is_worth_keeping(interactions: csr_matrix) -> bool:
    """Whether a log is so dense that summing its pairs takes longer than reading sums, and the sums are not too many."""
    items = interactions.shape[1]
    return gram_sums.pairs(interactions) >= WORTH * items**2 and 8 * gram_sums.size(items) <= MOST


def drop_others(home: Home, used: set[str]) -> int:
    """Delete the sums of matrices that are not among those used; how many went."""
    dropped = 0
    for folder in home.sums.glob("*"):
        if manifest.facts_if_any(folder, RECORD).get("matrices") not in used:
            manifest.remove(folder)
            dropped += 1
    return dropped


def _made_by() -> str:
    libraries = " ".join(f"{name} {version(name)}" for name in ("numpy", "numba"))
    return f"{fingerprint.of_file(Path(gram_sums.__file__))} {libraries}"


def _of_earlier_runs(home: Home, facts: dict[str, Any]) -> list[Path]:
    """Sums of the same protocol and exponent, the newest first."""
    same = ("protocol", "exponent", "made_by")
    found = [
        folder
        for folder in home.sums.glob("*")
        if not {name: facts[name] for name in same}.items() - manifest.facts_if_any(folder, RECORD).items()
    ]
    return sorted(found, key=lambda folder: (folder / RECORD).stat().st_mtime_ns, reverse=True)


def _before(home: Home, folder: Path, now: SplitMatrices) -> gram_sums.Before | None:
    """Sums of an earlier run, with the rows and columns of now that have been there; None where something is damaged."""
    array = _read(folder)
    if array is None:
        return None
    try:
        old = matrices.read(home, manifest.facts(folder, RECORD)["matrices"], parts=())
    except manifest.Damaged as error:
        logger.warning("%s; X'X is summed from nothing", error)
        return None
    users = np.intersect1d(old.users, now.users, assume_unique=True, return_indices=True)[1:]
    _, places_before, places = np.intersect1d(old.items, now.items, assume_unique=True, return_indices=True)
    items = np.full(len(now.items), -1, dtype=np.int64)
    items[places] = places_before
    return gram_sums.Before(old.train, array, users, items)


def _make(
    folder: Path, facts: dict[str, Any], interactions: csr_matrix, threads: int, before: gram_sums.Before | None
) -> None:
    """Write the sums, whole or not at all; a worker that has made the same meanwhile is overwritten."""
    partial = folder.with_name(f"partial-{uuid.uuid4().hex}")
    partial.mkdir(parents=True)
    try:
        out = _room(partial / ARRAY, gram_sums.size(interactions.shape[1]))
        share = gram_sums.fill(interactions, facts["exponent"], threads, out, before)
        del out
        manifest.seal(partial, RECORD, facts)
        manifest.remove(folder)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    how = "from nothing" if share is None else f"by the rows that changed, {100 * share:.1f} % of the work from nothing"
    logger.info("X'X of %s, user_weight_exponent %g: summed %s", facts["protocol"], facts["exponent"], how)


def _room(file: Path, length: int) -> np.ndarray:
    """A new array in a file; its place on the disk is taken first, for a full disk would end the process at a write.

    Raises:
        OSError: the disk is full.
    """
    array = np.lib.format.open_memmap(file, mode="w+", dtype=np.float64, shape=(length,))
    with file.open("r+b") as stream:
        os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)
    return array


def _read(folder: Path) -> np.ndarray | None:
    """Stored sums; None where they are not what was written, which is said."""
    try:
        manifest.checked(folder, RECORD)
        return np.load(folder / ARRAY, mmap_mode="r", allow_pickle=False)
    except (manifest.Damaged, OSError) as error:
        logger.warning("%s; X'X is summed from nothing", error)
        return None
