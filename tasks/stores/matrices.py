"""Store of split matrices: CSR arrays in `<home>/<dataset>/matrices/<digest>/`, memory-mapped when read.

The digest is that of the arrays' bytes, so that equal splits share a folder, and a stage that receives a digest knows
its input. `split.json`, written last, describes the arrays and has the sha256 of each.
"""

import functools
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages, with_recency_ranks
from oneclass.tasks.stores import checksums
from oneclass.tasks.stores.home import Home

RECORD_FILE = "split.json"
PARTS = ("test", "validation")


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

    def select(self, chosen: np.ndarray | slice) -> "Part":
        """Select users by their positions in the part."""
        names = ("stored_histories", "targets", "users", "rows", "explicit_negatives")
        of_users: dict[str, Any] = {name: getattr(self, name) for name in names}
        return replace(self, **{name: array[chosen] for name, array in of_users.items() if array is not None})


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
        event_ages: of the training edges, in the same order; None if the split does not keep the times.
        item_features: float32 (items, F), of the items' attributes; None without.
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
    item_features: csr_matrix | None = None

    @property
    def histories(self) -> csr_matrix:
        """`train` for scoring: with recency ranks if the split keeps the order, and event ages if it keeps times."""
        return with_event_ages(with_recency_ranks(self.train, self.recency_ranks), self.event_ages)

    def users_of(self, name: str, first: int, end: int | None) -> Part:
        """Return the users [first, end) of a part with their histories, without reading other memory-mapped rows."""
        part = self.parts[name].select(slice(first, end))
        return part if part.rows is None else replace(part, stored_histories=self.histories[part.rows])


def store_split(home: Home, split: SplitMatrices) -> str:
    """Store a split atomically under the digest of its content, and return the digest."""
    arrays = _split_arrays(split)
    seen_items = sorted(name for name, part in split.parts.items() if part.seen_items)
    ranks_seen = f" seen items in {seen_items}" if seen_items else ""
    digest = _split_digest(f"{split.protocol} {split.numbering.get('digest')}{ranks_seen}", arrays)
    if not has_split(home, digest):
        with checksums.write_folder(home.matrices / digest, RECORD_FILE) as (folder, facts):
            for name, array in arrays.items():
                np.save(folder / f"{name}.npy", array, allow_pickle=False)
            facts |= {"protocol": split.protocol, "parts": sorted(split.parts), "shape": list(split.train.shape)}
            facts |= {"numbering": split.numbering, "seen_items": seen_items}
    return digest


def has_split(home: Home, digest: str) -> bool:
    """Whether the split with this digest is stored and undamaged; logs a warning if it is damaged."""
    return bool(checksums.find_checked_facts(home.matrices / digest, RECORD_FILE))


def load_rows(home: Home, digest: str, first: int, end: int) -> csr_matrix:
    """Copy rows [first, end) out of a split's memory-mapped training matrix, in any process.

    Raises:
        DamagedFile: they differ from what was stored.
    """
    return load_split(home, digest, parts=()).train[first:end]


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
    left_out = tuple(f"{name}_" for name in PARTS if parts is not None and name not in parts)
    folder = home.matrices / digest
    stored = checksums.load_checked_facts(folder, RECORD_FILE, lambda name: not name.startswith(left_out))
    arrays = {
        file.stem: np.load(file, mmap_mode="r") for file in folder.glob("*.npy") if not file.name.startswith(left_out)
    }
    train = read_matrix(arrays, "train", items := stored["shape"][1])
    assert train is not None
    split = SplitMatrices(
        stored["protocol"],
        train,
        arrays["users"],
        arrays["items"],
        numbering=stored["numbering"],
        latest_mask=arrays.get("train_ends"),
        explicit_negatives=read_matrix(arrays, "train_negatives", items),
        recency_ranks=arrays.get("train_places"),
        event_ages=_find_event_ages(arrays, "train"),
        item_features=read_matrix(arrays, "item_features"),
    )
    found = {}
    for name in stored["parts"]:
        if not (parts is None or name in parts):
            continue
        rows, known = arrays.get(f"{name}_rows"), read_matrix(arrays, f"{name}_histories", items, owner=name)
        if rows is not None and histories:
            # The histories of training users are rows of `train`, and are not stored twice.
            known = split.histories if len(rows) == split.train.shape[0] else split.histories[rows]
        targets, negatives = (read_matrix(arrays, f"{name}_{kind}", items) for kind in ("targets", "negatives"))
        assert targets is not None
        seen_items, new_items = name in stored.get("seen_items", ()), arrays.get(f"{name}_new_items")
        found[name] = Part(known, targets, arrays[f"{name}_users"], rows, negatives, seen_items, new_items)
    return replace(split, parts=found)


def read_matrix(
    arrays: Mapping[str, np.ndarray], name: str, columns: int | None = None, owner: str | None = None
) -> csr_matrix | None:
    """Build a CSR view over stored arrays, without copying or checking them; None if they are absent.

    Args:
        columns: the number of columns; None if it is stored.
        owner: the name of the order and the ages of its entries; None to build it without.
    """
    if f"{name}_indptr" not in arrays:
        return None
    columns = int(arrays[f"{name}_width"]) if columns is None else columns
    counts, indices, indptr = (arrays[f"{name}_{kind}"] for kind in ("counts", "indices", "indptr"))
    matrix = csr_view(counts, indices, indptr, columns, arrays.get(f"{owner}_places"))
    return with_event_ages(matrix, _find_event_ages(arrays, owner))


def _find_event_ages(arrays: Mapping[str, np.ndarray], owner: str | None) -> EventAges | None:
    days = arrays.get(f"{owner}_event_ages")
    return None if days is None else EventAges(arrays[f"{owner}_event_starts"], days)


@functools.lru_cache(maxsize=4)
def _csr_template(rows: int, width: int) -> dict[str, Any]:
    """Return the attributes of a matrix of this shape, to copy: scipy's constructor is several times slower."""
    # scipy-stubs let a shape make a matrix of float64 only.
    matrix = csr_matrix((rows, width), dtype=np.float32)  # pyright: ignore[reportCallIssue, reportArgumentType]
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return vars(matrix)


def csr_view(
    counts: np.ndarray, columns: np.ndarray, indptr: np.ndarray, width: int, recency_ranks: np.ndarray | None = None
) -> csr_matrix:
    """Build a CSR view over arrays of sorted columns, unchecked; with ranks, `SequentialHistories`."""
    matrix = object.__new__(csr_matrix)
    vars(matrix).update(_csr_template(len(indptr) - 1, width), data=counts, indices=columns, indptr=indptr)
    return with_recency_ranks(matrix, recency_ranks)


def _split_arrays(split: SplitMatrices) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray | None] = {"users": split.users, "items": split.items, "train_ends": split.latest_mask}
    arrays |= _csr_arrays("train", split.histories, owner="train")
    arrays |= _csr_arrays("train_negatives", split.explicit_negatives)
    if (features := split.item_features) is not None:
        arrays |= {**_csr_arrays("item_features", features), "item_features_width": np.array(features.shape[1])}
    for name, part in split.parts.items():
        arrays |= {f"{name}_users": part.users, f"{name}_rows": part.rows, f"{name}_new_items": part.new_items}
        arrays |= _csr_arrays(f"{name}_targets", part.targets)
        arrays |= _csr_arrays(f"{name}_negatives", part.explicit_negatives)
        if part.rows is None:
            arrays |= _csr_arrays(f"{name}_histories", part.histories, owner=name)
    return {name: array for name, array in arrays.items() if array is not None}


def _csr_arrays(name: str, matrix: csr_matrix | None, owner: str | None = None) -> dict[str, np.ndarray | None]:
    """Return the arrays of a matrix, and those of the order of its entries, which have the name of their owner."""
    if matrix is None:
        return {}
    index = np.int32 if matrix.nnz < 2**31 else np.int64  # scipy wants one type for both
    ages: EventAges | None = getattr(matrix, "event_ages", None)
    return {
        f"{name}_indptr": np.asarray(matrix.indptr, dtype=index),
        f"{name}_indices": np.asarray(matrix.indices, dtype=index),
        f"{name}_counts": np.asarray(matrix.data, dtype=np.float32),
        f"{owner}_places": getattr(matrix, "recency_ranks", None),
        f"{owner}_event_starts": ages.starts if ages else None,
        f"{owner}_event_ages": ages.days if ages else None,
    }


def _split_digest(name_of_split: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(name_of_split.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()[:16]
