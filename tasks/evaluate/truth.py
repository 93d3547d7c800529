"""The demo's hidden graph and traits, in the order of a split's matrices; real data have none."""

import json
import logging

import duckdb
import numpy as np

from models.generator.density_ratio import Truth, considered_odds
from tasks.stores import warehouse
from tasks.stores.home import Home
from tasks.stores.matrices import SplitMatrices

logger = logging.getLogger(__name__)


def load(home: Home, split: SplitMatrices) -> Truth | None:
    """The truth behind a split of the demo; None for other data, or where it tells of other likes than the split's.

    They differ when `binarize` was given other settings than the demo's own.
    """
    edges = home.truth / "edges.parquet"
    if not edges.is_file():
        return None
    made = json.loads((home.truth / "settings.json").read_text(encoding="utf-8"))["settings"]
    with warehouse.connect(home, read_only=True) as connection:
        differing = warehouse.select(connection, "evaluate/not_in_truth", edges=str(edges)).row(0)
        if any(differing):
            logger.info(
                "calibration: %d edges are not likes of the demo's truth and %d of its likes are not edges; "
                "`like` is not held against it",
                *differing,
            )
            return None
        ids = [_ids(connection, side)[indices] for side, indices in (("user", split.users), ("item", split.items))]
        counts = (made["users"], made["items"])
        degrees = [_degrees(connection, str(edges), side, count) for side, count in zip(("user", "item"), counts)]
    odds = considered_odds(*degrees)
    users, items, item_bias = (np.load(home.truth / f"{name}.npy") for name in ("users", "items", "item_bias"))
    return Truth(users[ids[0]], items[ids[1]], item_bias[ids[1]], odds[0][ids[0]], odds[1][ids[1]])


def _ids(connection: duckdb.DuckDBPyConnection, side: str) -> np.ndarray:
    """The row in the truth of each curated index."""
    found = warehouse.select(connection, "evaluate/ids", {"side": side})
    ids = np.empty(len(found), dtype=np.int64)
    ids[found["place"].to_numpy()] = found["id"].to_numpy()
    return ids


def _degrees(connection: duckdb.DuckDBPyConnection, edges: str, side: str, count: int) -> np.ndarray:
    """Degrees in the hidden graph, int64 (count,)."""
    found = warehouse.select(connection, "evaluate/degrees_in_truth", {"side": side}, edges=edges)
    degrees = np.zeros(count, dtype=np.int64)
    degrees[found["id"].to_numpy()] = found["degree"].to_numpy()
    return degrees
