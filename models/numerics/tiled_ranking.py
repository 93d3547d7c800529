"""The best items of a block of users without the scores of all items.

Items are cut into tiles of about equal popularity. A tile is scored for those users only whose n-th best score so far
is not above a bound of their scores in the tile, and tiles with large bounds come first. The factors of a tile lie in a
ball, around their mean c with the radius r, so <u, v> <= <u, c> + |u| r for each item v of it (Ram and Gray, "Maximum
inner-product search using cone trees", KDD 2012). Lists have the ids and bits of those made of all scores.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.matmul import as_read_only, dense_times
from oneclass.models.numerics.top_k import any_above, as_index_arrays, contains, sift_down, sift_up, sort_heap

TILE_ITEMS = 256
FIRST_TILES, GROUP_TILES = 4, 64  # scored together for one user, at first and at most; fewer of several users
FEW_USERS = 16  # for which the products of all items take as long as those of a tenth of the items by tiles
MAX_SHARE_OF_FEW = 0.1
ROUNDING = 2.0**-22  # of a float32 sum of products, for each term, relative to its lengths; a generous bound
ITEMS_PER_SCAN = 32  # passed over together, where all are worse than the worst in the heap

ColumnsOf = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ItemTiles:
    """Items in tiles of about equal popularity.

    Attributes:
        order: int32 (items,), the most popular first; TILE_ITEMS at a time are a tile, the last one may be shorter.
    """

    order: np.ndarray

    @classmethod
    def of(cls, item_degrees: np.ndarray) -> Self:
        """Order the items by their training edges."""
        return cls(np.argsort(-item_degrees, kind="stable").astype(np.int32))

    def __iter__(self) -> Iterator[np.ndarray]:
        for start in range(0, len(self.order), TILE_ITEMS):
            yield self.order[start : start + TILE_ITEMS]

    def items_of(self, tiles: np.ndarray) -> np.ndarray:
        """Return the items of some tiles, int32."""
        starts = (TILE_ITEMS * tiles).tolist()
        return np.concatenate([self.order[start : start + TILE_ITEMS] for start in starts])


@dataclass(frozen=True)
class Balls:
    """A ball around the factors of each tile.

    Attributes:
        centers: float32 (width, tiles).
        radii: float32 (tiles,), with a margin for rounding.
    """

    centers: np.ndarray
    radii: np.ndarray

    @classmethod
    def of(cls, balls: Iterable[tuple[np.ndarray, np.floating]]) -> Self:
        """Put together the center and the radius of each tile (`find_ball`)."""
        centers, radii = map(np.array, zip(*balls, strict=True))
        margin = (centers.shape[1] + 8) * ROUNDING
        radii = (1 + margin) * radii + margin * np.linalg.norm(centers, axis=1)
        return cls(np.ascontiguousarray(centers.T, dtype=np.float32), radii.astype(np.float32))

    def bound(self, rows: np.ndarray) -> np.ndarray:
        """Return upper bounds of <row, column> for each row and all columns of a tile, float32 (block, tiles)."""
        lengths = np.linalg.norm(rows.astype(np.float64), axis=1) * (1 + ROUNDING)
        bounds = dense_times(rows, self.centers)
        bounds += lengths.astype(np.float32)[:, None] * self.radii
        return bounds


def find_ball(columns: np.ndarray) -> tuple[np.ndarray, np.floating]:
    """Return the mean of some columns, float64 (width,), and the largest distance to it."""
    center = columns.mean(axis=1, dtype=np.float64)
    return center, np.sqrt(((columns - center[:, None]) ** 2).sum(axis=0).max())


class TiledScores(ABC):
    """Scores of a block of users, of any of them for any items, and bounds of their scores in tiles.

    Attributes:
        tiles: the items' tiles.
    """

    tiles: ItemTiles

    @abstractmethod
    def bound(self) -> np.ndarray:
        """Return upper bounds of the scores of each user in each tile, float32 (block, tiles)."""

    @abstractmethod
    def score(self, users: np.ndarray | slice, items: np.ndarray) -> np.ndarray:
        """Return float32 (users, items), with the bits of `Model.scores`.

        Args:
            users: positions in the block.
            items: int (n,), columns.
        """

    def score_all(self, items: np.ndarray) -> list[np.ndarray]:
        """Return each of the model's scores of all users for some items, float32 (block, n); they share their work."""
        return [self.score(slice(None), items)]


@dataclass(frozen=True)
class LinearScores(TiledScores):
    """Scores <u, v> + constant.

    Attributes:
        rows: float32 (block, width), u.
        columns_of: returns v of some items, float32 (width, n).
        make_balls: returns those of the tiles.
        constant: added to each score.
    """

    tiles: ItemTiles
    rows: np.ndarray
    columns_of: ColumnsOf
    make_balls: Callable[[], Balls]
    constant: float = 0.0

    def bound(self) -> np.ndarray:
        """As `TiledScores.bound`."""
        bounds, constant = self.make_balls().bound(self.rows), np.float32(self.constant)
        bounds += constant
        return bounds + np.float32(ROUNDING) * (np.abs(bounds) + 2 * np.abs(constant))

    def score(self, users: np.ndarray | slice, items: np.ndarray) -> np.ndarray:
        """As `TiledScores.score`."""
        scores = dense_times(self.rows[users], np.ascontiguousarray(self.columns_of(items)))
        if self.constant:
            scores += np.float32(self.constant)
        return scores


def rank_tiles(
    scores: TiledScores, indptr: np.ndarray, indices: np.ndarray, n: int, allowed: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the n best items of each user as `top_items` does of all scores; None where that takes less time.

    Args:
        indptr, indices: the items to leave out (CSR), with sorted column indices.
        allowed: bool (items,), which items may come; None for all.
    """
    bounds = scores.bound()
    users, tiles = bounds.shape
    order, most = np.argsort(-bounds.max(axis=0), kind="stable"), max(1, GROUP_TILES // max(1, users))
    lists, start, count = BestItems(users, n, indptr, indices), 0, min(most, FIRST_TILES)
    while start < tiles:
        group = order[start : start + count]
        reached = ~(bounds[:, group] < lists.least[:, None])  # a bound that is no number leaves nothing out
        some = np.flatnonzero(reached.any(axis=1))
        if len(some):
            items = scores.tiles.items_of(group[reached.any(axis=0)])
            items = items if allowed is None else items[allowed[items]]
            lists.offer(scores.score(some, items), some, items)
        if start == 0 and users < FEW_USERS and (bounds >= lists.least[:, None]).mean() > MAX_SHARE_OF_FEW:
            return None
        start, count = start + count, min(most, 2 * count)
    return lists.sort()


class BestItems:
    """The best items so far of a block of users, in heaps.

    Args:
        indptr, indices: the items to leave out (CSR), with sorted column indices.

    Attributes:
        least: float32 (users,), the score of the last item of a list that is full, else -inf.
    """

    def __init__(self, users: int, n: int, indptr: np.ndarray, indices: np.ndarray) -> None:
        self._excluded = as_index_arrays(indptr, indices)
        self._ids, self._best = np.full((users, n), -1, np.int32), np.full((users, n), -np.inf, np.float32)
        self._sizes, self.least = np.zeros(users, dtype=np.int64), np.full(users, -np.inf, dtype=np.float32)

    def offer(self, scores: np.ndarray, users: np.ndarray, items: np.ndarray) -> None:
        """Put items into the lists of some users where they belong.

        Args:
            scores: float32 (len(users), len(items)).
        """
        users, items = as_read_only(users, np.int64), as_read_only(items, np.int32)
        _offer(scores, items, users, *self._excluded, self._ids, self._best, self._sizes, self.least)

    def sort(self) -> tuple[np.ndarray, np.ndarray]:
        """Put the lists in order and return them as `top_items` does; nothing is offered after it."""
        _sort_lists(self._ids, self._best, self._sizes)
        return self._ids, self._best


@njit(cache=True, parallel=True, nogil=True)
def _offer(scores, items, users, indptr, indices, ids, best, sizes, least):
    """Put the items of a tile into the heaps of some users; `least` becomes the worst score of a heap that is full."""
    for row in prange(len(users)):
        user = users[row]
        excluded = indices[indptr[user] : indptr[user + 1]]
        sizes[user] = _offer_row(scores[row], items, excluded, ids[user], best[user], sizes[user])
        if sizes[user] == ids.shape[1]:
            least[user] = best[user, 0]


@njit(cache=True, nogil=True)
def _offer_row(scores, items, excluded, ids, best, size):
    """Put items into one user's heap and return its new size; of equal scores the lower id is better."""
    lowest = np.float32(-np.inf)
    for start in range(0, len(scores), ITEMS_PER_SCAN):
        stop = min(start + ITEMS_PER_SCAN, len(scores))
        if size == len(ids) and not any_above(scores[start:stop], np.nextafter(best[0], lowest)) and best[0] > lowest:
            continue
        for place in range(start, stop):
            item, score = items[place], scores[place]
            if np.isnan(score):
                score = lowest
            if size == len(ids) and not (score > best[0] or (score == best[0] and item < ids[0])):
                continue
            if contains(excluded, item):
                continue
            if size == len(ids):
                sift_down(ids, best, size, item, score)
            else:
                sift_up(ids, best, size, item, score)
                size += 1
    return size


@njit(cache=True, parallel=True, nogil=True)
def _sort_lists(ids, best, sizes):
    for user in prange(len(ids)):
        sort_heap(ids[user], best[user], sizes[user])
