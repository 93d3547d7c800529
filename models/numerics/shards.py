"""Rows cut into runs of about equal load, so that a fixed order of sums serves any number of threads."""

import numpy as np


def shards(starts: np.ndarray, count: int = 64) -> np.ndarray:
    """Bounds int64 (shards + 1,) of at most `count` runs of rows with about as many entries each."""
    rows = len(starts) - 1
    load = starts + np.arange(rows + 1) * 8  # a vertex costs something without edges too
    bounds = np.searchsorted(load, np.linspace(0, load[-1], count + 1))
    bounds[0], bounds[-1] = 0, rows
    return np.unique(bounds)
