"""Select lists from scores by the rules of a list."""

import copy
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.numerics.constrained_top_k import Constraints, select_top_items
from oneclass.models.reranking import select_diverse_items
from oneclass.tasks.errors import InputError
from oneclass.tasks.rules.conditions import CACHED_CELLS, ITEM_USERS, Catalogue, Condition, UserValues
from oneclass.tasks.rules.settings import DeclaredRules, ListRules

EVALUATED_CELLS = 1 << 22  # pairs of a user's values and an item that are evaluated at once, some 50 bytes each
NEW_COLUMN = "history.is_new"  # a category of its own, with a limit


@dataclass(frozen=True)
class Selection:
    """How a block of users gets lists from scores; plain arrays, which can be sent to a worker.

    Attributes:
        n: items of a list.
        constraints, sets: of sets of users, and the set of each user.
        excluded: (users, items), what users must not get beside the items of their histories; None for nothing.
        exclude_seen: whether to leave out the items of the histories.
        diversity: how strongly lists are picked for variety; None for the best items.
        max_new: places that new items may have (`tasks.recommend.new_items`), which the constraints bound.
    """

    n: int
    constraints: Constraints
    sets: np.ndarray
    excluded: csr_matrix | None = None
    exclude_seen: bool = True
    diversity: float | None = None
    max_new: int = 0

    @classmethod
    def of_all(cls, histories: csr_matrix, n: int, *, exclude_seen: bool) -> Self:
        """Return the selection of users whose lists obey no rules."""
        users, items = histories.shape
        none = np.empty(0, dtype=np.int32)
        eligible, indptr = np.ones((1, items), dtype=bool), np.zeros(items + 1, dtype=np.int64)
        sets = np.zeros(users, dtype=np.int32)
        return cls(n, Constraints(eligible, None, none, indptr, none, none), sets, exclude_seen=exclude_seen)

    def for_rows(self, rows: slice | np.ndarray) -> "Selection":
        """Return the selection of some of the users."""
        excluded = None if self.excluded is None else self.excluded[rows]
        return dataclasses.replace(self, sets=self.sets[rows], excluded=excluded)

    def restrict(self, allowed: np.ndarray) -> "Selection":
        """Return the selection under which items must be allowed too, bool (items,)."""
        eligible = self.constraints.eligible & allowed
        return dataclasses.replace(self, constraints=dataclasses.replace(self.constraints, eligible=eligible))

    def find_excluded(self, histories: csr_matrix) -> tuple[np.ndarray, np.ndarray]:
        """Return the items that users must not get (CSR: indptr, indices), given their (users, items) histories."""
        seen = histories if self.exclude_seen else csr_matrix(histories.shape)
        if self.excluded is not None:
            seen = csr_matrix(seen.astype(bool) + self.excluded)  # the union of the patterns
        return seen.indptr, seen.indices

    def compute_digest(self) -> str:
        """Return a digest of all that decides what is selected from scores."""
        excluded = () if self.excluded is None else (self.excluded.indptr, self.excluded.indices)
        arrays = (*vars(self.constraints).values(), self.sets, *excluded)
        digest = hashlib.sha256(repr((self.n, self.exclude_seen, self.diversity, self.max_new)).encode())
        for array in arrays:
            if isinstance(array, np.ndarray):
                digest.update(repr((array.shape, array.dtype)).encode() + array.tobytes())
        return digest.hexdigest()


def select_lists(
    scores: np.ndarray, histories: csr_matrix, selection: Selection, vectors: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lists of a block of users: ids and scores, (block, n), padded with -1 and -inf.

    Args:
        scores, histories: (block, items).
        vectors: of the items, `models.reranking.project_items`; needed if the selection has a `diversity`.
    """
    excluded = selection.find_excluded(histories)
    arguments = scores, *excluded, selection.sets, selection.constraints
    if selection.diversity is None:
        return select_top_items(*arguments, min(selection.n, scores.shape[1]))
    assert vectors is not None
    return select_diverse_items(*arguments, selection.n, vectors=vectors, strength=selection.diversity)


class Selector:
    """The rules of one list, checked and evaluated for a catalogue.

    Attributes:
        conditions: all must hold for an item to be eligible.
        limits: `max_per_category`, by column.
    """

    def __init__(self, declared: DeclaredRules, catalogue: Catalogue, placement: str | None, n: int) -> None:
        """Evaluate what is the same for all users, for lists of n items; without a placement the rules of all lists.

        Raises:
            InputError: naming the setting, the column or part that is wrong, and close names.
        """
        layers: dict[str, ListRules] = {"[rules]": declared.rules}
        if placement is not None:
            layers[f"[placements.{placement}]"] = declared.placements[placement]
        self._n, self._catalogue = n, catalogue
        self._diversity = None if placement is None else declared.placements[placement].diversity
        texts = [name for name, kind in catalogue.item_types.items() if kind.startswith("varchar")]
        check, boosts = catalogue.check_condition, list[tuple[Condition, float]]()
        self.conditions, self.limits = list[Condition](), dict[str, int]()
        for table, layer in layers.items():
            if layer.eligible:
                self.conditions.append(check(layer.eligible, f"{table} eligible"))
            for number, boost in enumerate(layer.boosts, 1):
                boosts.append((check(boost.when, f"{table} boosts, number {number}, when"), boost.by))
            for column in layer.max_per_category:
                if column not in texts:
                    known = f"is no column of texts in the table of items; such are {', '.join(texts)}"
                    raise InputError(f"{table} max_per_category: {column} {known}.")
            self.limits |= layer.max_per_category
        self._boosts = sorted(boosts, key=lambda boost: bool(boost[0].user_columns))
        is_new = catalogue.items[ITEM_USERS].to_numpy() == 0
        self._max_new = declared.count_new(n)
        self._eligible = np.full(len(is_new), fill_value=True) if self._max_new else ~is_new
        self._eligible[_find_columns(declared.rules.banned, catalogue.item_ids)] = False
        for condition in self.conditions:
            if not condition.user_columns:
                self._eligible = self._eligible & catalogue.find_items(condition, {})[0]
        self._pinned = _find_columns(declared.rules.pinned, catalogue.item_ids)
        items, limits = catalogue.items, self.limits
        if self._max_new and is_new.any():
            new = pl.when(pl.col(ITEM_USERS) == 0).then(pl.lit("new"))
            items, limits = items.with_columns(new.alias(NEW_COLUMN)), {**limits, NEW_COLUMN: self._max_new}
        self._categories = _index_categories(items, limits)
        self._start_cache()

    def narrow(self, condition: Condition) -> "Selector":
        """Return a selector under which another condition, on user columns, must hold too."""
        narrowed = copy.copy(self)
        narrowed.conditions = [*self.conditions, condition]
        narrowed._start_cache()
        return narrowed

    def select(
        self, count: int, describe: Callable[[], pl.DataFrame], *, excluded: csr_matrix | None, exclude_seen: bool
    ) -> Selection:
        """Return how users get their lists; `describe` is called for their columns if a condition names one."""
        sets, constraints = self._constrain(count, describe)
        return Selection(self._n, constraints, sets, excluded, exclude_seen, self._diversity, self._max_new)

    def find_eligible_items(self) -> np.ndarray:
        """Return bool (items,), the items that a user may see who is not known."""
        return self._evaluate(self._catalogue.describe_stranger().to_dict(as_series=False))[0][0]

    def _start_cache(self) -> None:
        named = [*self.conditions, *(condition for condition, _ in self._boosts)]
        self._user_columns = sorted({column for condition in named for column in condition.user_columns})
        self._constrain_one = functools.lru_cache(max(1, CACHED_CELLS // max(len(self._eligible), 1)))(
            lambda values: self._build(*self._evaluate(dict(zip(self._user_columns, values, strict=True))))
        )

    def _constrain(self, count: int, describe: Callable[[], pl.DataFrame]) -> tuple[np.ndarray, Constraints]:
        """Return the set of each user, int32, and the constraints of the sets, from each combination of values once."""
        names, sets = self._user_columns, np.zeros(count, dtype=np.int32)
        if not names or not count:
            return sets, self._constrain_one(((None,),) * len(names))
        users = describe().select(names)
        if count == 1:
            values = (tuple(value) if isinstance(value, list) else value for value in users.row(0))
            return sets, self._constrain_one(tuple((value,) for value in values))
        distinct = users.unique(maintain_order=True)
        set_of_row: dict[bytes, int] = {}
        rows, numbers = [], []
        for block in distinct.iter_slices(max(1, EVALUATED_CELLS // max(len(self._eligible), 1))):
            for row in zip(*self._evaluate(block.to_dict(as_series=False)), strict=True):
                numbers.append(set_of_row.setdefault(b"".join(part.tobytes() for part in row), len(rows)))
                if numbers[-1] == len(rows):
                    rows.append(row)
        numbered = distinct.with_columns(set=pl.Series(numbers, dtype=pl.Int32))
        sets = users.join(numbered, on=names, how="left", nulls_equal=True, maintain_order="left")["set"].to_numpy()
        return sets, self._build(*map(np.stack, zip(*rows, strict=True)))

    def _evaluate(self, users: UserValues) -> tuple[np.ndarray, np.ndarray]:
        """Return the eligible items, bool (users, items), and their boosts, float32 (users, items or 0)."""
        find = functools.partial(self._catalogue.find_items, users=users)
        masks = [find(condition) for condition in self.conditions if condition.user_columns]
        eligible = functools.reduce(np.logical_and, masks, self._eligible[None])
        boosts = sum((find(condition) * by for condition, by in self._boosts), np.zeros((1, min(len(self._boosts), 1))))
        rows = max(len(eligible), len(boosts))
        eligible, boosts = (np.broadcast_to(part, (rows, part.shape[1])) for part in (eligible, boosts))
        return eligible, boosts.astype(np.float32)

    def _build(self, eligible: np.ndarray, boosts: np.ndarray) -> Constraints:
        return Constraints(eligible, boosts if boosts.size else None, self._pinned, *self._categories)


def _find_columns(wanted: Sequence[str], item_ids: pl.Series) -> np.ndarray:
    """Return int32, the columns of the wanted ids that are known, in their order and once each."""
    places = {item_id: place for place, item_id in enumerate(dict.fromkeys(wanted))}
    found = item_ids.is_in(list(places)).arg_true().to_list()
    return np.array(sorted(found, key=lambda column: places[item_ids[column]]), dtype=np.int32)


def _index_categories(items: pl.DataFrame, limits: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the categories of each item (CSR: indptr, indices), numbered over all columns, and their limits."""
    parts = [pl.DataFrame(schema={"item": pl.Int64, "name": pl.String, "value": pl.List(pl.String), "most": pl.Int32})]
    for name, most in limits.items():
        values = {"item": pl.int_range(pl.len()), "name": pl.lit(name), "value": pl.concat_list(name)}
        parts.append(items.select(**values, most=pl.lit(most, pl.Int32)))
    pairs = pl.concat(parts).explode("value").drop_nulls().unique()
    pairs = pairs.with_columns(category=pl.struct("name", "value").rank("dense").cast(pl.Int32) - 1)
    pairs = pairs.sort("item", "category")
    counts = np.bincount(pairs["item"].to_numpy(), minlength=len(items))
    limit_by_category = pairs.unique("category").sort("category")["most"].to_numpy()
    return np.concatenate([[0], np.cumsum(counts)]), pairs["category"].to_numpy(), limit_by_category
