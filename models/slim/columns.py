"""Batches of columns: bounds on their numbers of weights, the coordinate descent, and its results."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from oneclass.models.numerics.matmul import as_read_only
from oneclass.models.slim.kernels import SolvedColumns, count_candidates, solve_columns

BATCH_ENTRIES = 1 << 22  # candidates of a batch of columns: 32 MB


class Gram(NamedTuple):
    """diag(factor) X' diag(w) X diag(factor) of the pairs of items that share a user; see
    `models.slim.kernels.fill_pairs`.

    Attributes:
        starts: int64 (items + 1,), where each row begins.
        columns, values: uint32 and float32. A row with as many elements as there are items is dense, in their order.
    """

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    def read_only(self) -> "Gram":
        """Return read-only arrays, so that kernels are compiled for one type."""
        kinds = np.int64, np.uint32, np.float32
        return Gram(*(as_read_only(array, kind) for array, kind in zip(self, kinds, strict=True)))


@dataclass(frozen=True)
class RegressionSettings:
    """The parameters of every column's regression, as in the settings."""

    l1: float
    l2: float
    tolerance: float
    max_sweeps: int
    neighbours: int


@dataclass(frozen=True)
class ColumnWeights:
    """The weights of consecutive columns.

    Attributes:
        rows, weights: int32 and float32, of all columns, one after the other.
        counts: int64 (columns,), number of weights of each.
        unconverged: number of columns that `max_sweeps` ended.
    """

    rows: np.ndarray
    weights: np.ndarray
    counts: np.ndarray
    unconverged: int

    @classmethod
    def concatenate(cls, parts: "list[ColumnWeights]") -> "ColumnWeights":
        """Concatenate parts in their order."""
        rows, weights, counts = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "weights", "counts")
        )
        return cls(rows, weights, counts, sum(part.unconverged for part in parts))


def iterate_batches(gram: Gram, sizes: np.ndarray, regression: RegressionSettings) -> list[tuple[int, np.ndarray]]:
    """Cut all columns into batches.

    Args:
        sizes: as in `models.slim.kernels.solve_columns`.

    Returns:
        For each batch, its first column and int64 (columns,) upper bounds on the numbers of weights.
    """
    bounds = np.zeros(len(gram.starts) - 1, dtype=np.int64)
    count_candidates(gram, sizes, np.float32(regression.l1), bounds)
    if regression.neighbours:
        bounds = np.minimum(bounds, regression.neighbours)
    number = np.cumsum(bounds) // BATCH_ENTRIES
    cuts = np.flatnonzero(np.diff(number)) + 1
    return list(zip([0, *cuts.tolist()], np.split(bounds, cuts), strict=True))


def solve_columns_from(
    first: int,
    bounds: np.ndarray,
    gram: Gram,
    diagonal: np.ndarray,
    sizes: np.ndarray,
    regression: RegressionSettings,
    threads: int,
) -> ColumnWeights:
    """Solve the columns of a batch; a column's bits depend only on its number and the Gram matrix."""
    starts = np.concatenate([[0], np.cumsum(bounds)])
    rows, weights = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.float32)
    found = np.zeros((len(bounds), 2), dtype=np.int64)
    penalties = np.float32(regression.l1), np.float32(regression.l2)
    limits = np.float32(regression.tolerance), regression.max_sweeps, regression.neighbours
    filled = SolvedColumns(starts, rows, weights, found)
    solve_columns(first, first + len(bounds), gram, diagonal, sizes, penalties, limits, max(1, threads), filled)
    lengths = np.stack([found[:, 0], bounds - found[:, 0]], axis=1)
    held = np.repeat(np.tile([True, False], len(bounds)), lengths.ravel())  # a byte for each candidate
    return ColumnWeights(rows[held], weights[held], found[:, 0], int(found[:, 1].sum()))
