"""Attributes of the test users, by which `evaluation.strata` divides them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import duckdb
import numpy as np
import polars as pl

from oneclass.tasks.attributes import MAX_FEW_TEXTS, load_attributes, load_version
from oneclass.tasks.datasets.attributes import FeatureKind
from oneclass.tasks.errors import InputError
from oneclass.tasks.evaluate.strata import ACTIVITY, POPULARITY
from oneclass.tasks.stores import warehouse

OTHER_STRATA = (ACTIVITY, POPULARITY)


@dataclass(frozen=True)
class UserAttributes:
    """Some attributes of all users.

    Attributes:
        digest: of the table and the columns.
        frame: (users, columns), in the order of `user_index`.
    """

    digest: str
    frame: pl.DataFrame

    def select(self, users: np.ndarray) -> dict[str, pl.Series]:
        """Return the values of some users, int32 `user_index`, by column."""
        return {column: self.frame[column].gather(users) for column in self.frame.columns}


def load_user_attributes(connection: duckdb.DuckDBPyConnection, columns: Sequence[str] | None) -> UserAttributes:
    """Load the columns that users are divided by.

    Args:
        columns: by default the features that are numbers or have at most `MAX_FEW_TEXTS` texts.

    Raises:
        InputError: users have no such attribute, or it has the name of other strata.
    """
    digest, names, kinds, *_ = load_version(connection, "user") or ("", [], [])
    check_attributes(columns or (), names)
    kind_of = dict(zip(names, kinds, strict=True))
    features = [name for name in names if kind_of[name] in get_args(FeatureKind) and name not in OTHER_STRATA]
    candidates = features if columns is None else list(columns)
    table = load_attributes(connection, "user") if candidates else None
    if table is None:
        return UserAttributes("", pl.DataFrame())
    chosen = [name for name in candidates if columns is not None or _is_small(table[name])]
    # one row per user, in the order of their indices
    ids = warehouse.query(connection, "select user_id from indexed.users order by user_index")
    frame = ids.join(table.select("user_id", *chosen), on="user_id", how="left", maintain_order="left")
    return UserAttributes(hashlib.sha256(f"{digest} {chosen}".encode()).hexdigest(), frame.drop("user_id"))


def check_attributes(columns: Sequence[str], known: Sequence[str]) -> None:
    """Refuse columns that users do not have.

    Raises:
        InputError: naming the column.
    """
    for name in columns:
        if name not in known:
            there = ", ".join(known) or "none: the data set has no table [users]"
            raise InputError(f"setting evaluate.attributes: users have no attribute {name}. There is {there}.")
        if name in OTHER_STRATA:
            raise InputError(f"setting evaluate.attributes: {name} is the name of other strata; rename the column.")


def _is_small(values: pl.Series) -> bool:
    """Whether a column is of numbers, or of few texts."""
    if values.dtype.is_numeric():
        return True
    texts = values.explode() if isinstance(values.dtype, pl.List) else values
    return texts.drop_nulls().n_unique() <= MAX_FEW_TEXTS
