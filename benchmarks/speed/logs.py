"""Logs of the benchmarks: drawn ones, the demo's own, and files with one held-out edge a user."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

SIMULATE = """
import sys
import numpy as np
from oneclass.models.numerics.adjacency import transpose
from oneclass.tasks.demo.story import DemoSettings, simulate_likes

users, items, likes, seed = map(int, sys.argv[2:])
simulation = simulate_likes(DemoSettings(users=users, items=items, likes=likes), seed)
starts = np.concatenate([[0], np.cumsum(simulation.liked)])[simulation.starts]
starts, columns = transpose(starts, simulation.users[simulation.liked], users)
np.save(sys.argv[1] + "/starts.npy", starts)
np.save(sys.argv[1] + "/items.npy", columns)
"""


def build_pattern(users: np.ndarray, items: np.ndarray, shape: tuple[int, int]) -> csr_matrix:
    """Build the matrix of ones of some edges, with sorted columns; repeated edges count once."""
    matrix = csr_matrix((np.ones(len(users), dtype=np.float32), (users, items)), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def draw_long_tailed(users: int, items: int, edges: int) -> csr_matrix:
    """Draw users of Pareto degrees, none above 40 times the mean, and items in proportion to (rank + 20)^-0.8."""
    generator = np.random.default_rng(0)
    degrees = np.minimum(generator.pareto(1.5, users) + 0.3, 40)
    rows = np.repeat(np.arange(users), generator.poisson(degrees * edges / degrees.sum()))
    popularity = np.cumsum((np.arange(items) + 20.0) ** -0.8)
    columns = np.searchsorted(popularity, generator.random(len(rows)) * popularity[-1])
    return build_pattern(rows, columns, (users, items))


def draw_equal_users(users: int, items: int, likes: int, *, seed: int = 0, offset: float = 20.0) -> csr_matrix:
    """Draw `likes` items for each user in proportion to (rank + offset)^-0.8; repeated items count once."""
    popularity = (np.arange(items) + offset) ** -0.8
    columns = np.random.default_rng(seed).choice(items, users * likes, p=popularity / popularity.sum())
    return build_pattern(np.repeat(np.arange(users), likes), columns, (users, items))


def simulate_demo_graph(users: int, items: int, likes: int, seed: int) -> csr_matrix:
    """Simulate the likes of the demo's log, in another process so that its memory does not count in this one."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = map(str, (users, items, likes, seed))
        subprocess.run([sys.executable, "-c", SIMULATE, folder, *sizes], check=True)
        starts, columns = np.load(f"{folder}/starts.npy"), np.load(f"{folder}/items.npy")
    return csr_matrix((np.ones(len(columns), dtype=np.int8), columns, starts), shape=(users, items))


def load_lines(file: Path) -> tuple[csr_matrix, csr_matrix]:
    """Load a file with a user and the user's items on each line; returns training and held-out edges.

    The last fifth of a line is held out.
    """
    lines = [list(dict.fromkeys(map(int, line.split()[1:]))) for line in file.read_text().splitlines()]
    shape = len(lines), 1 + max(max(items, default=0) for items in lines)
    counts = [len(items) - len(items) // 5 for items in lines]
    parts = [
        [items[:count] for items, count in zip(lines, counts, strict=True)],
        [items[count:] for items, count in zip(lines, counts, strict=True)],
    ]
    train, held_out = (
        build_pattern(
            np.repeat(np.arange(shape[0]), [len(items) for items in part]), np.concatenate(part).astype(int), shape
        )
        for part in parts
    )
    return train, held_out


def load_ratings(file: Path, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Load the edges of a user_id,item_id,rating file: indices of users and of items."""
    log = pl.read_csv(file).filter(pl.col("rating") >= threshold)
    users, items = (np.unique(log[name], return_inverse=True)[1] for name in ("user_id", "item_id"))
    return users, items


def hold_out_one(matrix: csr_matrix) -> tuple[csr_matrix, csr_matrix]:
    """Hold out a random edge of each user with at least two; returns training and held-out edges."""
    degrees = np.diff(matrix.indptr)
    chosen = matrix.indptr[:-1] + (np.random.default_rng(0).random(len(degrees)) * degrees).astype(np.int64)
    held_out = np.zeros(matrix.nnz, dtype=bool)
    held_out[chosen[degrees >= 2]] = True
    rows = np.repeat(np.arange(len(degrees)), degrees)
    return tuple(
        csr_matrix((matrix.data[part], (rows[part], matrix.indices[part])), shape=matrix.shape)
        for part in (~held_out, held_out)
    )


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name a log for `load_log`."""
    log = parser.add_mutually_exclusive_group(required=True)
    log.add_argument("--ratings", type=Path, help="user_id,item_id,rating; one edge of a user is held out")
    log.add_argument("--lines", type=Path, help="a user and the user's items a line; the last fifth is held out")
    log.add_argument("--made", nargs=3, type=int, metavar=("USERS", "ITEMS", "EDGES"), help="a long-tailed log")
    parser.add_argument("--threshold", type=float, default=4, help="lowest rating that is an edge")


def load_log(options: argparse.Namespace) -> tuple[csr_matrix, csr_matrix]:
    """Load or draw the log that the flags name; returns training and held-out edges, each (users, items)."""
    if options.lines:
        return load_lines(options.lines)
    if options.made:
        return hold_out_one(draw_long_tailed(*options.made))
    users, items = load_ratings(options.ratings, options.threshold)
    return hold_out_one(build_pattern(users, items, (users.max() + 1, items.max() + 1)))
