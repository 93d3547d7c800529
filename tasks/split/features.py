"""Features of users and items by their attributes, for the rows and columns of a split."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import duckdb
import numpy as np
from scipy.sparse import csr_matrix, vstack

from oneclass.models.attributes.encoder import KINDS, FeatureEncoder
from oneclass.tasks.attributes import Side, load_attributes, load_version
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.stores.warehouse import select

IDS: dict[Side, str] = {"user": "split/user_ids", "item": "split/item_ids"}


@dataclass(frozen=True)
class Features:
    """The features of all users and items by their index; None where the data set has no attributes of them.

    A user or item without a row of attributes has features of zero.
    """

    users: csr_matrix | None
    items: csr_matrix | None

    @classmethod
    def load(cls, connection: duckdb.DuckDBPyConnection) -> Self:
        """Encode the current attributes."""
        return cls(_load_side(connection, "user"), _load_side(connection, "item"))

    def add(self, split: SplitMatrices) -> SplitMatrices:
        """Add the features of the users and items of a split."""
        return replace(
            split,
            user_features=None if self.users is None else self.users[split.users],
            item_features=None if self.items is None else self.items[split.items],
        )


def list_feature_kinds(connection: duckdb.DuckDBPyConnection, side: Side) -> Mapping[str, str]:
    """Return the kind of each column of the current attributes that is a feature."""
    version = load_version(connection, side)
    kinds = zip(version.columns, version.types, strict=True) if version else ()
    return {name: kind for name, kind in kinds if kind in KINDS}


def _load_side(connection: duckdb.DuckDBPyConnection, side: Side) -> csr_matrix | None:
    kinds, frame = list_feature_kinds(connection, side), load_attributes(connection, side)
    if not kinds or frame is None:
        return None
    features = FeatureEncoder.fit(frame, kinds).encode(frame)
    row_of_id = {name: row for row, name in enumerate(frame[f"{side}_id"])}
    ids = select(connection, IDS[side])[f"{side}_id"]
    rows = np.array([row_of_id.get(name, len(row_of_id)) for name in ids], dtype=np.int64)
    missing = csr_matrix(np.zeros((1, features.shape[1]), dtype=np.float32))
    return csr_matrix(vstack([features, missing], format="csr")[rows])


def add_new_items(connection: duckdb.DuckDBPyConnection, split: SplitMatrices) -> SplitMatrices:
    """Append the items of `indexed.new_items`, columns without edges, to the split of every edge."""
    new = select(connection, "split/new_item_ids")["item_index"].to_numpy().astype(np.int32)
    items, negatives = np.concatenate([split.items, new]), split.explicit_negatives
    train = _widen(split.train, len(items))
    negatives = None if negatives is None else _widen(negatives, len(items))
    return replace(split, items=items, train=train, explicit_negatives=negatives)


def _widen(matrix: csr_matrix, columns: int) -> csr_matrix:
    return csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], columns))
