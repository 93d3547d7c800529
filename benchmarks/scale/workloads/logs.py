"""The log of a rung: of a size by the random-graph paper's generative story, or of a shape on which something is at its
worst.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.speed.mrf_dense import long_tailed
from oneclass.tasks.demo.story import DemoSettings, make_demo
from oneclass.tasks.stores.home import Home

LIKES_A_USER, SEED = 40, 7  # as in the demo's log


@dataclass(frozen=True)
class Rung:
    """One log.

    Attributes:
        edges, items: how many likes and items are asked for.
        users: how many users.
        shape: a key of SHAPES; empty for a log by the generative story.
    """

    edges: int
    items: int
    users: int
    shape: str = ""

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.shape or 'log'}, {self.edges:,} x {self.items:,}"

    @property
    def dataset(self) -> str:
        """The data set that the log is read as: the demo's settings hold for the demo's story."""
        return "ladder" if self.shape else "demo"


@dataclass(frozen=True)
class Shape:
    """A worst-shaped log at full scale; `draw` takes users, items and likes and gives the users and items of the
    edges.
    """

    users: int
    items: int
    likes: int
    draw: Callable[[int, int, int], tuple[np.ndarray, np.ndarray]]


def of_size(edges: int, items: int) -> Rung:
    """A rung of the ladder."""
    return Rung(edges, items, max(2, round(edges / LIKES_A_USER)))


def of_shape(name: str, scale: float) -> Rung:
    """A worst-shaped log, its users and items multiplied by `scale`."""
    shape = SHAPES[name]
    users, items = max(2, round(shape.users * scale)), max(shape.likes, round(shape.items * scale))
    return Rung(users * shape.likes, items, users, name)


def write(rung: Rung, folder: Path) -> list[Path]:
    """The log's files, of an earlier run where they are there.

    Raises:
        InputError: a size that no graph of the story has.
    """
    if not rung.shape:
        settings = DemoSettings(users=rung.users, items=rung.items, likes=rung.edges)
        return make_demo(Home(folder, "demo"), settings, SEED)
    file, shape = folder / "log.csv", SHAPES[rung.shape]
    if not file.exists():
        users, items = shape.draw(rung.users, rung.items, shape.likes)
        folder.mkdir(parents=True, exist_ok=True)
        pl.DataFrame({"user": users, "item": items}).write_csv(file.with_suffix(".part"))
        file.with_suffix(".part").rename(file)
    return [file]


def _tailed(users: int, items: int, likes: int) -> tuple[np.ndarray, np.ndarray]:
    edges = long_tailed(users, items, likes).tocoo()
    return edges.row, edges.col


def _one_with_all(users: int, items: int, likes: int) -> tuple[np.ndarray, np.ndarray]:
    row, column = _tailed(users, items, likes)
    return np.concatenate([row, np.full(items, users)]), np.concatenate([column, np.arange(items)])


def _equal(users: int, items: int, likes: int) -> tuple[np.ndarray, np.ndarray]:
    """All users have `likes` items, and all items as many users, or one more or fewer of a user's, by shifts of one
    order.
    """
    draws = np.random.default_rng(SEED)
    order, shifts = draws.permutation(items), draws.choice(items, likes, replace=False)
    return np.repeat(np.arange(users), likes), order[(np.arange(users)[:, None] + shifts) % items].ravel()


SHAPES = {
    "one_user_all_items": Shape(100_000, 41_000, 20, _one_with_all),
    "million_items": Shape(200_000, 1_000_000, 20, _tailed),
    "three_likes_each": Shape(10_000_000, 18_000, 3, _tailed),
    "equal_degrees": Shape(100_000, 20_000, 40, _equal),
}
