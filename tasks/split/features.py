"""Features of items by their attributes, for the columns of a split."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix, vstack

from oneclass.models.attributes.encoder import KINDS, FeatureEncoder
from oneclass.tasks.attributes import load_attributes, load_version
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.stores.warehouse import select


@dataclass(frozen=True)
class Features:
    """The features of all items by their index; None where the data set has no attributes of them.

    An item without a row of attributes has features of zero.
    """

    items: csr_matrix | None

    @classmethod
    def load(cls, connection: duckdb.DuckDBPyConnection) -> Self:
        """Encode the current attributes."""
        return cls(_encode_items(connection))

    def add(self, split: SplitMatrices) -> SplitMatrices:
        """Add the features of the items of a split."""
        return replace(split, item_features=None if self.items is None else self.items[split.items])


def list_feature_kinds(connection: duckdb.DuckDBPyConnection) -> Mapping[str, str]:
    """Return the kind of each column of the items' current attributes that is a feature."""
    version = load_version(connection, "item")
    kinds = zip(version.columns, version.types, strict=True) if version else ()
    return {name: kind for name, kind in kinds if kind in KINDS}


def _encode_items(connection: duckdb.DuckDBPyConnection) -> csr_matrix | None:
    kinds, frame = list_feature_kinds(connection), load_attributes(connection, "item")
    if not kinds or frame is None:
        return None
    return encode_items(frame, kinds, select(connection, "split/item_ids")["item_id"])


def encode_items(frame: pl.DataFrame, kinds: Mapping[str, str], ids: pl.Series) -> csr_matrix:
    """Encode the attributes of items by their ids, float32 (ids, features); zero for an id without a row."""
    features = FeatureEncoder.fit(frame, kinds).encode(frame)
    row_of_id = {name: row for row, name in enumerate(frame["item_id"])}
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
