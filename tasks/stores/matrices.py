"""Store of split matrices: CSR arrays in `<home>/<dataset>/matrices/<digest>/`, memory-mapped when read.

The digest is that of the arrays' bytes, so that equal splits share a folder, and a stage that receives a digest knows
its input. `split.json`, written last, describes the arrays and has the sha256 of each.
"""

import hashlib
import logging
import shutil
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages, with_recency_ranks
from oneclass.tasks.stores import checksums, durable
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

RECORD_FILE = "split.json"


@dataclass(frozen=True)
class Part:
    """Users that a protocol ranks items for.

    Attributes:
        stored_histories: (users, items), the known likes of each user. `SequentialHistories` if the split keeps the
            order. None for training users whose rows of `train` were not copied (`load_split`).
        targets: (users, items), the likes to find; disjoint from the histories unless seen items are ranked.
        users: int32 (users,), their curated `user_index`.
        rows: int32 (users,), their rows in `train`, or None for users not seen in training.
        explicit_negatives: (users, items), explicit negatives held out of the fit, in the log's proportion to the
            targets; None if none are held out.
        seen_items: whether rankings include the items of the histories.
        new_items: int32, the columns without a training edge that are ranked among themselves, apart from the others;
            None if all are ranked together.
    """

    stored_histories: csr_matrix | None
    targets: csr_matrix
    users: np.ndarray
    rows: np.ndarray | None = None
    explicit_negatives: csr_matrix | None = None
    seen_items: bool = False
    new_items: np.ndarray | None = None

    @property
    def excluded(self) -> csr_matrix:
        """(users, items), the items left out of the rankings: those of the histories, or none."""
        return csr_matrix(self.targets.shape) if self.seen_items else self.histories

    @property
    def histories(self) -> csr_matrix:
        """`stored_histories`, if there are some.

        Raises:
            ValueError: the rows of `train` were not copied.
        """
        if self.stored_histories is None:
            raise ValueError("these users' histories were not copied: call load_split with histories")
        return self.stored_histories


@dataclass(frozen=True)
class SplitMatrices:
    """One protocol's matrices; a stored value is the edge's event count.

    Attributes:
        train: (training users, items), the edges that models are fitted on.
        users: int32 (training users,), the curated `user_index` of each row.
        items: int32 (items,), the curated `item_index` of each column.
        parts: `test`, and `validation` if the protocol has one.
        numbering: `users` and `items`, the number of indices, and the `digest` of their ids.
        latest_mask: bool (training edges,), in the order of `train`'s entries: the latest edges, which a search holds
            out for validation; None if it draws them at random.
        explicit_negatives: (training users, items), explicit negatives; None if the log has none.
        recency_ranks: int32 (training edges,), in the order of `train`'s entries: recency rank, the number of the
            user's newer training edges; None if the split does not keep the order (`split.order`).
        event_ages: of the training edges, in the same order; None if the split does not keep the times (`split.times`).
        user_features, item_features: float32 (training users, F) and (items, F), of their attributes; None without.
    """

    protocol: str
    train: csr_matrix
    users: np.ndarray
    items: np.ndarray
    parts: dict[str, Part] = field(default_factory=dict)
    numbering: dict[str, Any] = field(default_factory=dict)
    latest_mask: np.ndarray | None = None
    explicit_negatives: csr_matrix | None = None
    recency_ranks: np.ndarray | None = None
    event_ages: EventAges | None = None
    user_features: csr_matrix | None = None
    item_features: csr_matrix | None = None

    @property
    def histories(self) -> csr_matrix:
        """`train` for scoring: with recency ranks if the split keeps the order, and event ages if it keeps times."""
        return with_event_ages(with_recency_ranks(self.train, self.recency_ranks), self.event_ages)

    def users_of(self, name: str, first: int, end: int) -> Part:
        """Return the users [first, end) of a part with their histories, without reading other memory-mapped rows."""
        part, selected = self.parts[name], slice(first, end)
        rows = None if part.rows is None else part.rows[selected]
        histories = part.histories[selected] if rows is None else self.histories[rows]
        negatives = None if part.explicit_negatives is None else part.explicit_negatives[selected]
        ranked = part.seen_items, part.new_items
        return Part(histories, part.targets[selected], part.users[selected], rows, negatives, *ranked)


@dataclass(frozen=True)
class MatrixStoreRows:
    """Loads rows of a split's training matrix in any process (`models.fit_options.RowLoader`)."""

    home: Home
    digest: str

    def __call__(self, first: int, end: int) -> csr_matrix:
        """Copy rows [first, end) out of the memory-mapped matrix.

        Raises:
            DamagedFile: they differ from what was stored.
        """
        with self.home.writing():
            return load_split(self.home, self.digest, parts=()).train[first:end]


def store_split(home: Home, split: SplitMatrices) -> str:
    """Store a split atomically under the digest of its content, and return the digest."""
    arrays = _split_arrays(split)
    seen_items = sorted(name for name, part in split.parts.items() if part.seen_items)
    ranks_seen = f" seen items in {seen_items}" if seen_items else ""
    digest = _split_digest(f"{split.protocol} {split.numbering.get('digest')}{ranks_seen}", arrays)
    if has_split(home, digest):
        return digest
    target = home.matrices / digest
    checksums.remove_path(target)
    partial = home.matrices / f"partial-{uuid.uuid4().hex}"
    durable.make_folder(partial)
    try:
        for name, array in arrays.items():
            np.save(partial / f"{name}.npy", array, allow_pickle=False)
        description = {
            "protocol": split.protocol,
            "parts": sorted(split.parts),
            "shape": list(split.train.shape),
            "numbering": split.numbering,
            "seen_items": seen_items,
        }
        checksums.write_manifest(partial, RECORD_FILE, description)
        durable.replace_path(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return digest


def has_split(home: Home, digest: str) -> bool:
    """Whether the split with this digest is stored and undamaged; logs a warning if it is damaged."""
    return checksums.verify_folder(home.matrices / digest, RECORD_FILE, "; the matrices are made anew")


def load_split(
    home: Home, digest: str, parts: Collection[str] | None = None, *, histories: bool = True
) -> SplitMatrices:
    """Load the split with this digest, verifying its checksums; arrays are memory-mapped.

    Args:
        parts: the parts to read, all by default; no file of the others is opened.
        histories: whether to build the histories of training users, which copies their rows of `train` unless all users
            are in the part; pass False to load users in batches (`SplitMatrices.users_of`).

    Raises:
        DamagedFile: a file differs from what was stored. A run writes it again.
    """
    folder = home.matrices / digest
    description = checksums.load_facts(folder, RECORD_FILE)
    wanted = [name for name in description["parts"] if parts is None or name in parts]
    left_out = tuple(f"{name}_" for name in set(description["parts"]) - set(wanted))
    checksums.load_checked_facts(folder, RECORD_FILE, lambda name: not name.startswith(left_out))
    files = [file for file in folder.glob("*.npy") if not file.name.startswith(left_out)]
    arrays = {file.stem: np.load(file, mmap_mode="r", allow_pickle=False) for file in files}
    train, recency_ranks = _load_matrix(arrays, "train", description["shape"][1]), arrays.get("train_places")
    event_ages = _load_event_ages(arrays, "train")
    ordered_train = with_event_ages(with_recency_ranks(train, recency_ranks), event_ages)
    return SplitMatrices(
        description["protocol"],
        train,
        arrays["users"],
        arrays["items"],
        {
            # Splits that an earlier version stored rank no seen items.
            name: _load_part(arrays, name, ordered_train, histories, name in description.get("seen_items", ()))
            for name in wanted
        },
        description["numbering"],
        arrays.get("train_ends"),
        _load_explicit_negatives(arrays, "train", description["shape"][1]),
        recency_ranks,
        event_ages,
        _load_features(arrays, "user"),
        _load_features(arrays, "item"),
    )


def _load_part(
    arrays: dict[str, np.ndarray], name: str, train: csr_matrix, with_histories: bool, seen_items: bool
) -> Part:
    rows, histories = arrays.get(f"{name}_rows"), None
    if rows is None:
        histories = with_recency_ranks(
            _load_matrix(arrays, f"{name}_histories", train.shape[1]), arrays.get(f"{name}_places")
        )
        histories = with_event_ages(histories, _load_event_ages(arrays, name))
    elif with_histories:
        # The histories of training users are rows of `train`, and are not stored twice.
        histories = train if len(rows) == train.shape[0] else train[rows]
    targets, negatives = (
        _load_matrix(arrays, f"{name}_targets", train.shape[1]),
        _load_explicit_negatives(arrays, name, train.shape[1]),
    )
    new_items = arrays.get(f"{name}_new_items")
    return Part(histories, targets, arrays[f"{name}_users"], rows, negatives, seen_items, new_items)


def _load_features(arrays: dict[str, np.ndarray], side: str) -> csr_matrix | None:
    count = arrays.get(f"{side}_features_width")
    return None if count is None else _load_matrix(arrays, f"{side}_features", int(count))


def _load_explicit_negatives(arrays: dict[str, np.ndarray], name: str, columns: int) -> csr_matrix | None:
    return _load_matrix(arrays, f"{name}_negatives", columns) if f"{name}_negatives_indptr" in arrays else None


def _load_event_ages(arrays: dict[str, np.ndarray], name: str) -> EventAges | None:
    days = arrays.get(f"{name}_event_ages")
    return None if days is None else EventAges(arrays[f"{name}_event_starts"], days)


def _event_arrays(name: str, ages: EventAges | None) -> dict[str, np.ndarray]:
    return {} if ages is None else {f"{name}_event_starts": ages.starts, f"{name}_event_ages": ages.days}


def _split_arrays(split: SplitMatrices) -> dict[str, np.ndarray]:
    arrays = {"users": split.users, "items": split.items, **_csr_arrays("train", split.train)}
    if split.latest_mask is not None:
        arrays["train_ends"] = split.latest_mask
    if split.recency_ranks is not None:
        arrays["train_places"] = split.recency_ranks
    arrays |= _event_arrays("train", split.event_ages)
    if split.explicit_negatives is not None:
        arrays |= _csr_arrays("train_negatives", split.explicit_negatives)
    for side, features in (("user", split.user_features), ("item", split.item_features)):
        if features is not None:
            width = np.array(features.shape[1])
            arrays |= {**_csr_arrays(f"{side}_features", features), f"{side}_features_width": width}
    for name, part in split.parts.items():
        if part.new_items is not None:
            arrays[f"{name}_new_items"] = part.new_items
        if part.explicit_negatives is not None:
            arrays |= _csr_arrays(f"{name}_negatives", part.explicit_negatives)
        arrays |= {**_csr_arrays(f"{name}_targets", part.targets), f"{name}_users": part.users}
        if part.rows is not None:
            arrays[f"{name}_rows"] = part.rows
        else:
            arrays |= _csr_arrays(f"{name}_histories", part.histories)
            if (recency_ranks := getattr(part.histories, "recency_ranks", None)) is not None:
                arrays[f"{name}_places"] = recency_ranks
            arrays |= _event_arrays(name, getattr(part.histories, "event_ages", None))
    return arrays


def _csr_arrays(name: str, matrix: csr_matrix) -> dict[str, np.ndarray]:
    index = np.int32 if matrix.nnz < 2**31 else np.int64  # scipy wants one type for both
    return {
        f"{name}_indptr": np.asarray(matrix.indptr, dtype=index),
        f"{name}_indices": np.asarray(matrix.indices, dtype=index),
        f"{name}_counts": np.asarray(matrix.data, dtype=np.float32),
    }


def _load_matrix(arrays: dict[str, np.ndarray], name: str, columns: int) -> csr_matrix:
    """Build a CSR view over the mapped arrays, without copying or checking them."""
    shape = len(arrays[f"{name}_indptr"]) - 1, columns
    # scipy-stubs let a shape make a matrix of float64 only.
    matrix = csr_matrix(shape, dtype=np.float32)  # pyright: ignore[reportCallIssue, reportArgumentType]
    matrix.data, matrix.indices, matrix.indptr = (arrays[f"{name}_{kind}"] for kind in ("counts", "indices", "indptr"))
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def _split_digest(name_of_split: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(name_of_split.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()[:16]
