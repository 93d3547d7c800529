"""Attributes as features: each column of a table becomes a block of columns of a sparse matrix.

    category     the indicator of the value
    categories   the indicators of the values, each 1 / sqrt(their number)
    number       (x - mean) / standard deviation, at most MAX_DEVIATIONS from 0
    text         counts of the words, hashed into TEXT_BUCKETS columns and divided by their norm

So the block of a cell has the norm 1 (a number's has the mean square 1), and no column of the table outweighs another.
The block of a missing cell, and of a value that the encoder has not seen, is zero. Words are the runs of letters and
digits in lower case; their bucket is CRC-32 modulo TEXT_BUCKETS. A column keeps its MAX_VALUES most frequent values.
"""

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, cast, get_args

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix, hstack

Kind = Literal["category", "categories", "number", "text"]
KINDS = get_args(Kind)
TEXT_BUCKETS = 1024
MAX_VALUES = 1000
MAX_DEVIATIONS = 3.0


@dataclass(frozen=True)
class Column:
    """How one column of a table is encoded.

    Attributes:
        values: the values of a category, in the order of their features.
        mean, deviation: of a number.
    """

    name: str
    kind: Kind
    values: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: float = 0.0

    @property
    def feature_names(self) -> list[str]:
        """The name of each feature of the block."""
        if self.kind == "number":
            return [self.name]
        parts = range(TEXT_BUCKETS) if self.kind == "text" else self.values
        return [f"{self.name}={part}" for part in parts]


@dataclass(frozen=True)
class FeatureEncoder:
    """Encodes rows of a table as features; the order of the rows it was fitted on does not matter.

    Example:
        >>> import polars as pl
        >>> from oneclass.models.attributes.encoder import FeatureEncoder
        >>> books = pl.DataFrame({"genre": ["crime", None], "pages": [100, 300]})
        >>> encoder = FeatureEncoder.fit(books, {"genre": "category", "pages": "number"})
        >>> encoder.feature_names, encoder.encode(books).toarray().tolist()
        (['genre=crime', 'pages'], [[1.0, -1.0], [0.0, 1.0]])
    """

    columns: tuple[Column, ...]

    @classmethod
    def fit(cls, frame: pl.DataFrame, kinds: Mapping[str, str]) -> Self:
        """Learn the values of categories, and the scales of numbers.

        Args:
            kinds: the kind of each column that counts, by its name.

        Raises:
            ValueError: a column is missing, a kind is unknown, or a column does not have the type of its kind.
        """
        columns = []
        for name, kind in kinds.items():
            if kind not in KINDS:
                raise ValueError(f"column {name}: {kind!r} is no kind; take one of {', '.join(KINDS)}")
            columns.append(_fit_column(_find_column(frame, name), name, cast(Kind, kind)))
        return cls(tuple(columns))

    @property
    def feature_names(self) -> list[str]:
        """The name of each feature, such as `genre=crime`."""
        return [name for column in self.columns for name in column.feature_names]

    def encode(self, frame: pl.DataFrame) -> csr_matrix:
        """Encode a table, float32 (rows, features) with sorted columns.

        Raises:
            ValueError: a column is missing, or does not have the type of its kind.
        """
        empty = csr_matrix(np.empty((frame.height, 0), dtype=np.float32))
        blocks = [_encode_column(_find_column(frame, column.name), column) for column in self.columns]
        features = csr_matrix(hstack([empty, *blocks], format="csr", dtype=np.float32))
        features.eliminate_zeros()
        features.sort_indices()
        return features


def _find_column(frame: pl.DataFrame, name: str) -> pl.Series:
    if name not in frame.columns:
        raise ValueError(f"column {name}: not in the table of attributes, which has {', '.join(frame.columns)}")
    return frame[name]


def _fit_column(cells: pl.Series, name: str, kind: Kind) -> Column:
    if kind == "number":
        numbers = np.sort(_read_numbers(cells))  # sorted, so that sums do not depend on the order of the rows
        known = numbers[np.isfinite(numbers)]
        if len(known):
            return Column(name, kind, mean=float(known.mean()), deviation=float(known.std()))
    if kind in ("number", "text"):
        return Column(name, kind)
    counts = _list_parts(cells, kind).group_by("part").len().sort("len", "part", descending=[True, False])
    return Column(name, kind, tuple(sorted(counts["part"].head(MAX_VALUES))))


def _encode_column(cells: pl.Series, column: Column) -> csr_matrix:
    """Encode one column, float64 (rows, features of the column)."""
    if column.kind == "number":
        numbers = _read_numbers(cells) - column.mean
        numbers /= column.deviation if column.deviation > 0 else np.inf
        return csr_matrix(np.clip(np.nan_to_num(numbers, nan=0.0), -MAX_DEVIATIONS, MAX_DEVIATIONS)[:, None])
    parts = _list_parts(cells, column.kind)
    if column.kind == "text":
        width = TEXT_BUCKETS
        features = np.array([zlib.crc32(word.encode()) % width for word in parts["part"]], dtype=np.int64)
        rows = parts["row"].to_numpy()
    else:
        width, numbered = len(column.values), {value: number for number, value in enumerate(column.values)}
        features = np.array([numbered.get(value, -1) for value in parts["part"]], dtype=np.int64)
        rows, features = parts["row"].to_numpy()[features >= 0], features[features >= 0]
    block = csr_matrix((np.ones(len(rows)), (rows, features)), shape=(len(cells), width))
    norms = np.sqrt(np.asarray(block.multiply(block).sum(axis=1)).ravel())
    block.data /= np.repeat(norms, np.diff(block.indptr))
    return block


def _read_numbers(cells: pl.Series) -> np.ndarray:
    """Return the numbers of a column, float64 (rows,); NaN for a missing or infinite one."""
    if not (cells.dtype.is_numeric() or isinstance(cells.dtype, pl.Boolean | pl.Null)):
        raise ValueError(f"column {cells.name}: of the type {cells.dtype}, which is no number; declare another kind")
    numbers = cells.cast(pl.Float64).fill_null(np.nan).to_numpy()
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _list_parts(cells: pl.Series, kind: Kind) -> pl.DataFrame:
    """List the values or words of each cell: columns `row` and `part`; each value of a cell once, words repeatedly."""
    nested = isinstance(cells.dtype, pl.List)
    if nested != (kind == "categories") and cells.dtype != pl.Null:
        raise ValueError(f"column {cells.name}: of the type {cells.dtype}, which does not go with the kind {kind}")
    table = pl.DataFrame({"row": np.arange(len(cells)), "part": cells})
    if kind == "text":
        words = pl.col("part").cast(pl.String).map_elements(_split_words, return_dtype=pl.List(pl.String))
        return table.with_columns(words).explode("part").drop_nulls()
    table = (table.explode("part") if nested else table).with_columns(pl.col("part").cast(pl.String))
    return table.drop_nulls().filter(pl.col("part") != "").unique(maintain_order=True)


def _split_words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())
