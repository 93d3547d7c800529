"""Store of fitted models, in `<home>/<dataset>/models/<model>/<digest>/`, and starts of fits at earlier ones.

The digest is that of all inputs of a fit: the matrices, settings, seed, versions of the numerical libraries and source
of the model. So a stored fit need not be repeated. Beside the model's files lies `fit.json`, written last: what was
fitted, its cost, and the sha256 of each file.

A fit may start at that of the latest run; new users and items start as in any fit. Indices are numbered by first
appearance, so they keep their meaning unless a filter, a threshold or the logs themselves changed; then the fit starts
afresh. It also starts afresh if the earlier fit was trained on many of the edges that are now targets, which would leak
the answers. If only a few are, their users start as new ones: a user's only like is trained on, and may be held out
once there are more.
"""

import contextlib
import filecmp
import hashlib
import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from oneclass import sql
from oneclass.models import fingerprint
from oneclass.models.base import Model
from oneclass.models.fit_options import FitOptions, Start
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.stores import checksums, fits, matrices, publications, warehouse
from oneclass.tasks.stores.checksums import compute_key
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices

logger = logging.getLogger(__name__)


RECORD_FILE = "fit.json"
NUM_RETAINED_RUNS = 3
ENTRIES_PER_CHECK = 1 << 22  # entries of a memory-mapped array checked at a time


@dataclass(frozen=True)
class Fit:
    """A fitted model in the store, and its cost.

    Attributes:
        digest: its name in the store.
        key: the digest of the same fit without a warm start.
        matrices: digest of the matrices that it was fitted on.
        seconds: wall time of the fit.
        peak_bytes: the process's peak resident memory during it.
        saved_bytes: size of the saved form.
    """

    model: str
    digest: str
    key: str
    matrices: str
    seconds: float
    peak_bytes: int
    saved_bytes: int


def compute_fit_key(matrices: str, model: str, settings: ModelSettings, seed: int) -> str:
    """Compute the digest of a fit from its edges, settings, seed, library versions and the source of the model.

    Args:
        matrices: digest of the matrices to fit on.
    """
    kind = MODELS[model]
    kinds = [kind, *settings.find_components()]
    libraries = ["numpy", "scipy", "numba"] + ["torch"] * any(one.extra == "neural" for one in kinds)
    versions = {name: checksums.library_version(name) for name in libraries}
    source = " ".join(map(fingerprint.fingerprint_model, kinds))
    return compute_key(matrices, model, settings.model_dump(mode="json"), seed, source, versions)[:16]


def warm_fit_digest(key: str, previous: Fit | None) -> str:
    """Return the digest of a fit with this key that starts at `previous`; that of `previous` if nothing is new."""
    if previous is None:
        return key
    if previous.key == key:
        return previous.digest
    return hashlib.sha256(f"{key} from {previous.digest}".encode()).hexdigest()[:16]


def find_fit(home: Home, model: str, digest: str, *, checked: bool = True) -> Fit | None:
    """Find the fit with this digest; None if it is absent or damaged.

    Args:
        checked: whether to verify its files too, and log damage; else only its record is read.
    """
    find_facts = checksums.find_checked_facts if checked else checksums.find_facts
    facts, known = find_facts(fit_folder(home, model, digest), RECORD_FILE), Fit.__dataclass_fields__
    # An earlier version recorded more.
    return Fit(model, digest, **{name: value for name, value in facts.items() if name in known}) if facts else None


def store_fit(
    home: Home,
    estimator: Model,
    digest: str,
    *,
    key: str,
    matrices: str,
    seconds: float,
    peak_bytes: int,
) -> Fit:
    """Write a fitted model atomically, replacing a damaged one.

    Args:
        digest, key, matrices, seconds, peak_bytes: as in `Fit`.

    Raises:
        OneclassError: an entry of an array is NaN or infinite; nothing is stored.
    """
    with checksums.write_folder(fit_folder(home, estimator.name, digest), RECORD_FILE) as (folder, facts):
        estimator.save(folder)
        _require_finite(estimator.name, folder)
        _link_components(home, estimator, folder)
        size = sum(file.stat().st_size for file in folder.iterdir())
        facts |= {"key": key, "matrices": matrices, "seconds": seconds, "peak_bytes": peak_bytes, "saved_bytes": size}
    return Fit(estimator.name, digest, **facts)


def _link_components(home: Home, estimator: Model, folder: Path) -> None:
    """Replace the arrays that a blend has in common with its components' fits by links to their files."""
    components: list[Model] = getattr(estimator, "components", [])
    for number, component in enumerate(components):
        for file in folder.glob(f"{number}.*.npy"):
            stored = (home.models / component.name).glob(f"*/{file.name.partition('.')[2]}")
            with contextlib.suppress(OSError):  # no hard links on this file system, or a fit that another run deletes
                if same := next((one for one in stored if filecmp.cmp(one, file, shallow=False)), None):
                    link = file.with_suffix(".link")
                    os.link(same, link)
                    os.replace(link, file)


def load_fit(home: Home, model: str, digest: str) -> Model:
    """Load the fit with this digest, verifying its checksums; arrays are memory-mapped, threads are the home's.

    Raises:
        DamagedFile: it differs from what was stored. A run fits it again.
    """
    folder = fit_folder(home, model, digest)
    checksums.load_checked_facts(folder, RECORD_FILE)
    return MODELS[model].load(folder, threads=home.limits.threads)


def collect_garbage(home: Home, runs: int = NUM_RETAINED_RUNS) -> int:
    """Delete all matrices and fits except those of the current run, the latest `runs` evaluated runs, and the
    publications; and whatever was left half written there.

    The latest runs are those recorded last, whatever the clock said. Failed runs and tunes do not count, so that tuning
    never evicts a night's fits. A fit with a damaged record is deleted too, since it would be fitted again.

    Returns:
        The number of deleted folders.
    """
    with warehouse.open_warehouse(home, read_only=True) as connection:
        retained = set(connection.execute(sql.statement("train/retained_fits"), {"runs": runs}).fetchall())
    retained |= publications.list_used_fits(home)
    found = [fit for name in retained if (fit := find_fit(home, *name, checked=False))]
    stale = {*home.models.glob("*/*"), *home.matrices.glob("*")}
    stale -= {path for fit in found for path in (fit_folder(home, fit.model, fit.digest), home.matrices / fit.matrices)}
    for folder in stale:
        checksums.remove_path(folder)
    if stale:
        text = "%d folders of matrices and models that the latest %d evaluated runs did not use were deleted"
        logger.info(text, len(stale), runs)
    return len(stale)


def fit_folder(home: Home, model: str, digest: str) -> Path:
    """Return the folder of a fit, whether it exists or not."""
    return home.models / model / digest


def _require_finite(model: str, folder: Path) -> None:
    for file in sorted(folder.glob("*.npy")):
        flat = np.load(file, mmap_mode="r", allow_pickle=False).reshape(-1)
        blocks = (flat[start : start + ENTRIES_PER_CHECK] for start in range(0, len(flat), ENTRIES_PER_CHECK))
        if wrong := sum(int(np.count_nonzero(~np.isfinite(block))) for block in blocks):
            raise OneclassError(
                f"train: {model}: the fit has diverged: {wrong:,} of {len(flat):,} entries of {file.stem} are NaN or "
                "infinite. Change its settings, or leave it out of --models."
            )


LEAK_TOLERANCE = 0.01  # share of the targets that an earlier fit may have been trained on


def find_latest_fit(home: Home, protocol: str, model: str) -> Fit | None:
    """Find the model's fit by the latest completed run, if it is still stored and undamaged."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        values = {"protocol": protocol, "model": model}
        found = connection.execute(sql.statement("train/latest_fit"), values).fetchone()
    return fits.find_fit(home, model, found[0]) if found else None


def build_start(home: Home, estimator: Model, previous: Fit, split: SplitMatrices) -> Start | None:
    """Build a start from the earlier fit for a fit on a split; None, with a warning, if it is unusable."""
    try:
        start = _match_fit(home, previous, split)
        FitOptions(start=start).check(estimator, split.train)
    except (checksums.DamagedFile, ValueError) as error:
        logger.warning("%s begins afresh: %s", estimator.name, error)
        return None
    logger.info("%s begins at the fit of the last run", estimator.name)
    return start


def _match_fit(home: Home, previous: Fit, split: SplitMatrices) -> Start:
    before = matrices.load_split(home, previous.matrices, parts=())
    numbering = before.numbering
    with warehouse.open_warehouse(home, read_only=True) as connection:
        values = {"users": numbering["users"], "items": numbering["items"]}
        if warehouse.fetch_row(connection, sql.statement("split/numbering"), values) != (numbering["digest"],):
            raise ValueError("users or items were numbered anew since the last run")
    # the index of an item that nobody liked may change, as that of a user whose likes were all taken back
    known = {side: array[array < numbering[side]] for side, array in (("users", before.users), ("items", before.items))}
    before = replace(before, **known)
    leaked = _find_leaked_targets(before, split)
    if len(leaked) > LEAK_TOLERANCE * sum(part.targets.nnz for part in split.parts.values()):
        raise ValueError("the last run was trained on edges that have to be found now")
    users, items = _match_indices(before.users, split.users), _match_indices(before.items, split.items)
    users[np.isin(split.users, leaked)] = -1
    return Start(fits.load_fit(home, previous.model, previous.digest), users, items)


def _find_leaked_targets(before: SplitMatrices, split: SplitMatrices) -> np.ndarray:
    """Return the `user_index` of each target of the split that was a training edge before."""
    columns, leaked = _match_indices(before.items, split.items), [np.empty(0, dtype=np.int32)]
    for part in split.parts.values():
        targets = part.targets.tocoo()
        row, column = _match_indices(before.users, part.users)[targets.row], columns[targets.col]
        known = (row >= 0) & (column >= 0)
        targets_before = csr_matrix((np.ones(known.sum()), (row[known], column[known])), shape=before.train.shape)
        leaked.append(before.users[targets_before.multiply(before.train).nonzero()[0]])
    return np.concatenate(leaked)


def _match_indices(before: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Return the position in `before` of each index of `now`, -1 if it is new."""
    size = max(int(before.max(initial=-1)), int(now.max(initial=-1))) + 1
    positions = np.full(size, -1, dtype=np.int64)
    positions[before] = np.arange(len(before))
    return positions[now]
