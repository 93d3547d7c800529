"""Store of fitted models, in `<home>/<dataset>/models/<model>/<digest>/`.

The digest is that of all inputs of a fit: the matrices, settings, seed, versions of the numerical libraries and source
of the model. So a stored fit need not be repeated. Beside the model's files lies `fit.json`, written last: what was
fitted, its cost, and the sha256 of each file.
"""

import contextlib
import filecmp
import hashlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oneclass import sql
from oneclass.models import fingerprint
from oneclass.models.base import Model
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.stores import checksums, publications, warehouse
from oneclass.tasks.stores.checksums import compute_key
from oneclass.tasks.stores.home import Home

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
    """Load the fit with this digest, verifying its checksums; arrays are memory-mapped, threads as in the home's
    limits.

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
