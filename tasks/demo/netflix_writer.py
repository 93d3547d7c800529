"""Write a log in the Netflix Prize format: `combined_data_1.txt`, up to `_4` for a large log.

Each item has a line `ITEM:`, followed by one line `USER,STARS,YYYY-MM-DD` per rating.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from oneclass.models.numerics.adjacency import partition_rows

LINES_PER_FILE, MAX_FILES = 25_000_000, 4
EDGES_PER_BLOCK = 1 << 20

RatingFunction = Callable[[np.ndarray, np.ndarray, slice], tuple[np.ndarray, np.ndarray]]


def partition_items_by_edges(starts: np.ndarray, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield ranges [i, j) of the items [first, last) with about `EDGES_PER_BLOCK` edges, at least one item each."""
    while first < last:
        end = int(np.searchsorted(starts, starts[first] + EDGES_PER_BLOCK, side="right")) - 1
        end = min(max(end, first + 1), last)
        yield first, end
        first = end


def expand_items(starts: np.ndarray, first: int, end: int) -> np.ndarray:
    """Return the item of each edge of the items [first, end), int32."""
    return np.repeat(np.arange(first, end, dtype=np.int32), np.diff(starts[first : end + 1]))


def write_ratings_log(folder: Path, starts: np.ndarray, users: np.ndarray, rate: RatingFunction) -> list[str]:
    """Write the ratings of a graph; ids are indices plus one.

    Args:
        starts, users: CSR by item, int64 (N + 1,) and int32 (edges,).
        rate: maps users, items and positions of some edges to their stars (1 to 5) and dates (datetime64[D]).

    Returns:
        The names of the files.
    """
    files = min(MAX_FILES, -(-len(users) // LINES_PER_FILE))
    shares = partition_rows(starts, files)
    names = [f"combined_data_{number}.txt" for number in range(1, files + 1)]
    for name, low, high in zip(names, shares[:-1], shares[1:], strict=True):
        with open(folder / name, "wb") as file:
            parts = partition_items_by_edges(starts, int(low), int(high))
            file.writelines(_format_lines(starts, users, rate, first, end) for first, end in parts)
    return names


def _format_lines(starts: np.ndarray, users: np.ndarray, rate: RatingFunction, first: int, end: int) -> bytes:
    """Format the lines of the items [first, end).

    A line is a row of a byte matrix with zeros where it has no character; zeros are dropped at the end.
    """
    part = slice(starts[first], starts[end])
    users, items = users[part], expand_items(starts, first, end)
    stars, dates = rate(users, items, part)
    rows = np.zeros((len(users) + end - first, 21), dtype=np.uint8)
    edge = np.arange(len(users)) + items - first + 1
    rows[edge, :7] = _format_digits(users + 1)
    rows[edge, 7] = rows[edge, 9] = ord(",")
    rows[edge, 8] = ord("0") + stars
    rows[edge[:, None], np.arange(10, 20)] = _format_dates(dates)
    heads = starts[first:end] - starts[first] + np.arange(end - first)
    rows[heads, :7] = _format_digits(np.arange(first, end) + 1)
    rows[heads, 7] = ord(":")
    rows[:, 20] = ord("\n")
    return rows[rows != 0].tobytes()


def _format_digits(numbers: np.ndarray) -> np.ndarray:
    """Format seven decimal digits as ASCII, uint8 (n, 7), with zero bytes for leading zeros."""
    powers = 10 ** np.arange(6, -1, -1)
    digits = (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)
    digits[numbers[:, None] < powers] = 0
    return digits


def _format_dates(dates: np.ndarray) -> np.ndarray:
    """Format YYYY-MM-DD as ASCII, uint8 (n, 10). Each day is formatted once."""
    first = dates.min()
    days = np.datetime_as_string(first + np.arange((dates.max() - first).astype(int) + 1))
    return days.astype("S10").view(np.uint8).reshape(-1, 10)[(dates - first).astype(int)]
