"""The tables of a BPR fit in the layout of the kernels, and its epochs."""

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.bpr.kernels import CELLS, SHARDS, compile_step_kernel, draw_samples
from oneclass.models.fit_options import Start, copy_rows
from oneclass.models.numerics.adjacency import as_read_only, partition_rows
from oneclass.models.numerics.random_numbers import normals, purpose

INITIAL_SCALE = np.float32(0.1)  # standard deviation of the factors before the first step
SAMPLES = 1 << 22  # samples that are drawn and sorted at a time: 50 MB


class Training:
    """The tables in the layout of the kernels, and the epochs of training."""

    def __init__(
        self,
        interactions: csr_matrix,
        draws: tuple[np.ndarray, np.ndarray, int],
        factors: int,
        degree_exponent: float = 1.0,
    ) -> None:
        self.indptr = as_read_only(interactions.indptr, np.int64)
        self.indices = as_read_only(interactions.indices, np.int32)
        self.draws, self.factors = draws, factors
        self.layout, self.rows = _assign_item_blocks(np.bincount(self.indices, minlength=interactions.shape[1]))
        self.first = _first_samples(self.indptr, degree_exponent)
        self.parts = _partition_users(self.first)
        room = int((self.first[self.parts[..., 1]] - self.first[self.parts[..., 0]]).max())
        items = interactions.shape[1]
        self.work = (
            np.zeros((SHARDS, items), np.uint8),
            np.zeros((SHARDS, items), np.int64),
            np.zeros((SHARDS, room), np.int32),
        )
        self.samples = np.zeros((SHARDS, room, 3), np.int32)
        self.starts = np.zeros((SHARDS, CELLS + 1), np.int64)

    def start(self, seed: int) -> None:
        """Small normal factors; zeros for users without edges."""
        users, width, factors = len(self.indptr) - 1, row_width(self.factors), self.factors
        self.users, self.items = (np.zeros((rows, width), dtype=np.float32) for rows in (users, self.rows))
        self.users[:, :factors] = normals(seed, purpose("bpr users"), users, factors) * INITIAL_SCALE
        self.users[np.diff(self.indptr) == 0] = 0.0
        self.users[:, factors] = 1.0
        place = self.layout[0]
        self.items[place, :factors] = normals(seed, purpose("bpr items"), len(place), factors) * INITIAL_SCALE

    def take(self, start: Start) -> None:
        """Put the factors and biases of an earlier fit in place of the first ones, but for new users and items."""
        before, factors, place = start.previous, self.factors, self.layout[0]
        copy_rows(self.users[:, :factors], before.user_factors, start.users)
        rows = self.items[place]
        copy_rows(rows[:, :factors], before.item_factors, start.items)
        copy_rows(rows[:, factors], before.item_bias, start.items)
        self.items[place] = rows

    def epoch(self, number: int, rate: float, regularization: float, seed: int) -> float:
        """Make as many steps as there are edges; return the mean loss of every 16th sample before its step."""
        loss, run_steps = np.zeros((SHARDS, 2)), compile_step_kernel(row_width(self.factors))
        streams = (np.uint64(seed), purpose("bpr negatives"), np.uint64(number))
        for bounds in self.parts:
            edges, drawn = (self.indptr, self.indices, self.first), (self.samples, self.starts)
            draw_samples(edges, bounds, self.draws, self.layout, streams, self.work, drawn)
            steps = np.float32(rate), np.float32(regularization)
            run_steps(self.users, self.items, *drawn, self.factors, *steps, loss)
        total, count = loss.sum(axis=0)
        return float(total / max(count, 1.0))

    def export_arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Factors of users, factors of items, biases of items, in the order of the training matrix."""
        items = self.items[self.layout[0]]
        return self.users[:, : self.factors].copy(), items[:, : self.factors].copy(), items[:, self.factors].copy()


def _assign_item_blocks(degrees: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], int]:
    """Deal items to 2 SHARDS blocks of about equal weight, heaviest first, in alternating order.

    Returns:
        (place, block): int32 and int64 (items,), the row of each item in the table, in which blocks are contiguous, and
            its block; and the number of rows, with padding.
    """
    blocks = 2 * SHARDS
    lap, seat = np.divmod(np.argsort(np.argsort(-degrees, kind="stable")), blocks)
    block = np.where(lap % 2 == 0, seat, blocks - 1 - seat)
    size = -(-len(degrees) // blocks)
    place = block * size + lap
    return (as_read_only(place, np.int32), as_read_only(block, np.int64)), blocks * size


def _first_samples(indptr: np.ndarray, degree_exponent: float) -> np.ndarray:
    """int64 (users + 1,): the number of each user's first sample in an epoch; with exponent 1 it is `indptr`."""
    if degree_exponent == 1:
        return indptr
    degrees = np.diff(indptr).astype(np.float64)
    weights = np.cumsum(np.where(degrees > 0, degrees**degree_exponent, 0.0))
    return as_read_only(np.append(0, np.floor(weights * (indptr[-1] / weights[-1]) + 0.5)), np.int64)


def _partition_users(first: np.ndarray) -> np.ndarray:
    """int64 (parts, SHARDS, 2): the first user of each block, and the last + 1; a part is sampled at a time."""
    parts = -(-int(first[-1]) // SAMPLES)
    cuts = partition_rows(first, parts * SHARDS, whole=True)
    bounds = np.stack([cuts[:-1], cuts[1:]], axis=1)
    return np.ascontiguousarray(bounds.reshape(SHARDS, parts, 2).swapaxes(0, 1))


def row_width(factors: int) -> int:
    """Columns of a row: factors and bias, filled up to a multiple of 8 float32 (32 bytes)."""
    return -(-(factors + 1) // 8) * 8
