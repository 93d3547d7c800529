"""Compile rules for a catalogue and select lists from scores by them."""

import copy
import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.numerics.constrained_top_k import Constraints, select_top_items
from oneclass.models.reranking import select_diverse_items
from oneclass.tasks.errors import InputError
from oneclass.tasks.rules.expressions import (
    ITEM_USERS,
    USER_ITEMS,
    USER_PREFIX,
    ColumnKinds,
    Expression,
    check_expression,
    column_kinds,
    normalize_types,
)
from oneclass.tasks.rules.settings import DeclaredRules, ListRules, Rules, placement_rules

if TYPE_CHECKING:
    from oneclass.tasks.attributes import Attributes

NEW_COLUMN = "history.is_new"  # a category of its own, with a limit
CACHED_CELLS = 1 << 24  # of the constraints of single users, sets of five-byte cells


class CompiledRules(NamedTuple):
    """The rules of one list, checked.

    Attributes:
        conditions: all must hold for an item to be eligible.
        boosts: conditions, and what each adds, in spreads of scores.
        rules: the rest of the settings.
    """

    conditions: tuple[Expression, ...]
    boosts: tuple[tuple[Expression, float], ...]
    rules: Rules

    @property
    def user_columns(self) -> list[str]:
        """The user columns that the conditions name."""
        named = [*self.conditions, *(condition for condition, _ in self.boosts)]
        return sorted({column for condition in named for column in condition.user_columns})


class Catalogue:
    """The items that can be in lists, by column of the fit, and the columns that rules may name.

    Attributes:
        item_ids: by column.
        items: the items' columns, one row per column of the fit; null for an item without attributes.
        item_kinds, user_kinds: the kinds of the columns that expressions may name.
    """

    def __init__(self, item_ids: pl.Series, item_users: pl.Series, attributes: "Attributes") -> None:
        """Align attributes with the columns of the fit.

        Args:
            item_users: how many users like each item.
            attributes: of items and of users, where there are any.
        """
        self.item_ids = item_ids
        items = item_ids.rename("item_id").to_frame()
        if "item" in attributes:
            items = items.join(attributes["item"], on="item_id", how="left", maintain_order="left")
        self.items = normalize_types(items.with_columns(item_users.alias(ITEM_USERS)))
        self.user_attributes = attributes.get("user")
        self.item_kinds, self.user_kinds = rule_columns(attributes)

    def describe_users(self, user_ids: pl.Series, item_counts: pl.Series) -> pl.DataFrame:
        """Return the user columns that expressions may name, one row per user; null without attributes.

        Args:
            item_counts: how many items each user likes.
        """
        users = user_ids.rename("user_id").to_frame()
        if self.user_attributes is not None:
            # Without ids there is nothing to look up among what may be millions.
            known = users["user_id"].null_count() < len(users)
            attributes = self.user_attributes if known else self.user_attributes.clear()
            users = users.join(attributes, on="user_id", how="left", maintain_order="left")
        named = normalize_types(users).rename((USER_PREFIX + "{}").format)
        return named.with_columns(item_counts.cast(pl.Float64).alias(USER_ITEMS))


def rule_columns(attributes: "Attributes") -> tuple[ColumnKinds, ColumnKinds]:
    """Return the kinds of the item columns and of the user columns that expressions may name."""
    items, users = column_kinds(attributes.get("item")), column_kinds(attributes.get("user"), USER_PREFIX)
    return {"item_id": "text", **items, ITEM_USERS: "number"}, {**users, USER_ITEMS: "number"}


def compile_rules(
    declared: DeclaredRules, item_kinds: ColumnKinds, user_kinds: ColumnKinds, name: str | None = None
) -> CompiledRules:
    """Check the rules of a placement, or those of every list.

    Raises:
        InputError: naming the setting, the column or part that is wrong, and close names.
    """
    rules, placement = declared.rules, None if name is None else declared.placements[name]
    layers: list[tuple[str, ListRules]] = [("[rules]", rules)]
    if placement is not None:
        layers.append((f"[placements.{name}]", placement))
    conditions = tuple(
        check_expression(layer.eligible, f"{table} eligible", item_kinds, user_kinds)
        for table, layer in layers
        if layer.eligible
    )
    boosts = tuple(
        (check_expression(boost.when, f"{table} boosts, number {number}, when", item_kinds, user_kinds), boost.by)
        for table, layer in layers
        for number, boost in enumerate(layer.boosts, 1)
    )
    for table, layer in layers:
        for column in layer.max_per_category:
            if item_kinds.get(column) not in ("text", "texts"):
                known = ", ".join(one for one, kind in item_kinds.items() if kind in ("text", "texts"))
                raise InputError(
                    f"{table} max_per_category: {column} is no column of texts in the table of items; such are {known}."
                )
    return CompiledRules(conditions, boosts, placement_rules(rules, placement))


def check_rules(declared: DeclaredRules, item_kinds: ColumnKinds, user_kinds: ColumnKinds) -> None:
    """Check the rules and all placements; raises as `compile_rules`."""
    for name in (None, *declared.placements):
        compile_rules(declared, item_kinds, user_kinds, name)
    for column in declared.rules.request_filters:
        if column not in item_kinds and column not in user_kinds:
            known = ", ".join([*item_kinds, *user_kinds])
            raise InputError(f"[rules] request_filters: column {column} does not exist; known: {known}.")


@dataclass(frozen=True)
class Selection:
    """How a block of users gets lists from scores; plain arrays, which can be sent to a worker.

    Attributes:
        n: items of a list.
        constraints: of the sets of users.
        sets: the set of each user.
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
        scores: float32 (block, items).
        histories: (block, items).
        vectors: of the items, `models.reranking.project_items`; needed if the selection has a `diversity`.
    """
    excluded = selection.find_excluded(histories)
    arguments = scores, *excluded, selection.sets, selection.constraints, selection.n
    if selection.diversity is None:
        return select_top_items(*arguments)
    assert vectors is not None
    return select_diverse_items(*arguments, vectors=vectors, strength=selection.diversity)


class Selector:
    """Rules of one list, compiled for a catalogue."""

    def __init__(self, compiled: CompiledRules, catalogue: Catalogue, max_new: int | None = None) -> None:
        """Evaluate what is the same for all users.

        Args:
            max_new: how many items of a list may be new, liked by nobody; None for any number.
        """
        self.compiled, self._catalogue = compiled, catalogue
        item_ids = catalogue.item_ids
        eligible = np.ones(len(item_ids), dtype=bool)
        eligible[_find_columns(compiled.rules.banned, item_ids)] = False
        for condition in compiled.conditions:
            if not condition.user_columns:
                eligible &= condition.evaluate(catalogue.items, {}).to_numpy()
        is_new = catalogue.items[ITEM_USERS].to_numpy() == 0
        if max_new == 0:
            eligible &= ~is_new
        self._eligible = eligible
        self._item_boosts = np.zeros(len(item_ids))
        for condition, by in compiled.boosts:
            if not condition.user_columns:
                self._item_boosts[condition.evaluate(catalogue.items, {}).to_numpy()] += by
        self._pinned = _find_columns(compiled.rules.pinned, item_ids)
        self._max_new = max_new if is_new.any() else None
        self._start_cache()

    def _start_cache(self) -> None:
        size = CACHED_CELLS // max(len(self._eligible), 1)
        self._constrain_one = functools.lru_cache(size)(lambda values: self._build([self._evaluate(values)]))

    def constrain(self, users: pl.DataFrame) -> tuple[np.ndarray, Constraints]:
        """Return the set of each user, int32, and the constraints of the sets.

        Conditions are evaluated once for each combination of the users' values in `compiled.user_columns`; users whose
        constraints are the same are in one set.

        Args:
            users: one row per user, of `Catalogue.describe_users`.
        """
        names = self.compiled.user_columns
        if not names or len(users) < 2:
            first = tuple(users[name][0] if len(users) else None for name in names)
            return np.zeros(len(users), dtype=np.int32), self._constrain_one(first)
        set_of_values: dict[tuple[object, ...], int] = {}
        set_of_result: dict[tuple[bytes, bytes], int] = {}
        rows: list[tuple[np.ndarray, np.ndarray | None]] = []
        sets = np.empty(len(users), dtype=np.int32)
        for user, values in enumerate(users.select(names).iter_rows()):
            if (set_ := set_of_values.get(values)) is None:
                eligible, boosts = self._evaluate(values)
                key = eligible.tobytes(), b"" if boosts is None else boosts.tobytes()
                set_ = set_of_values[values] = set_of_result.setdefault(key, len(rows))
                if set_ == len(rows):
                    rows.append((eligible, boosts))
            sets[user] = set_
        return sets, self._build(rows)

    def narrow(self, condition: Expression) -> "Selector":
        """Return a selector under which a condition on user columns must hold too."""
        narrowed = copy.copy(self)
        narrowed.compiled = self.compiled._replace(conditions=(*self.compiled.conditions, condition))
        narrowed._start_cache()
        return narrowed

    def _evaluate(self, values: tuple[object, ...]) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the eligible items and the boosts of users with these values of `compiled.user_columns`."""
        user, eligible = dict(zip(self.compiled.user_columns, values, strict=True)), self._eligible.copy()
        for condition in self.compiled.conditions:
            if condition.user_columns:
                eligible &= condition.evaluate(self._catalogue.items, user).to_numpy()
        return eligible, self._sum_boosts(user)

    def _sum_boosts(self, user: Mapping[str, object]) -> np.ndarray | None:
        """Return the sum of the boosts of each item; None without boosts."""
        if not self.compiled.boosts:
            return None
        total = self._item_boosts.copy()
        for condition, by in self.compiled.boosts:
            if condition.user_columns:
                total[condition.evaluate(self._catalogue.items, user).to_numpy()] += by
        return total.astype(np.float32)

    @functools.cached_property
    def _categories(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        items, limits = self._catalogue.items, self.compiled.rules.max_per_category
        if self._max_new:
            new = pl.when(pl.col(ITEM_USERS) == 0).then(pl.lit("new"))
            items, limits = items.with_columns(new.alias(NEW_COLUMN)), {**limits, NEW_COLUMN: self._max_new}
        return _index_categories(items, limits)

    def find_eligible_items(self, user: pl.DataFrame) -> np.ndarray:
        """Return bool (items,), the items that a user may see, of the one row of `Catalogue.describe_users`."""
        return self._evaluate(tuple(user[name][0] for name in self.compiled.user_columns))[0]

    def _build(self, rows: Sequence[tuple[np.ndarray, np.ndarray | None]]) -> Constraints:
        """Return the constraints of sets, of which each row has the eligible items and the boosts."""
        boosts = [boosts for _, boosts in rows if boosts is not None]
        eligible = np.stack([eligible for eligible, _ in rows])
        return Constraints(eligible, np.stack(boosts) if boosts else None, self._pinned, *self._categories)


def restrict(constraints: Constraints, allowed: np.ndarray) -> Constraints:
    """Return constraints under which items must be allowed too, bool (items,)."""
    return dataclasses.replace(constraints, eligible=constraints.eligible & allowed)


def _find_columns(wanted: Sequence[str], item_ids: pl.Series) -> np.ndarray:
    """Return int32, the columns of the wanted ids that are known, in their order and once each."""
    places = {item_id: place for place, item_id in enumerate(dict.fromkeys(wanted))}
    found = item_ids.is_in(list(places)).arg_true().to_list()
    return np.array(sorted(found, key=lambda column: places[item_ids[column]]), dtype=np.int32)


def _index_categories(items: pl.DataFrame, limits: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the categories of each item (CSR: indptr, indices), numbered over all columns, and their limits."""
    indptr = np.zeros(len(items) + 1, dtype=np.int64)
    pairs, limit_by_category = [], []
    for column, limit in limits.items():
        values = items.select(pl.col(column).alias("value")).with_row_index("item")
        if values.schema["value"] != pl.String:
            values = values.explode("value")
        values = values.drop_nulls().unique()
        codes = values["value"].rank("dense").cast(pl.Int64).to_numpy() - 1 + len(limit_by_category)
        pairs.append(np.column_stack([values["item"].to_numpy(), codes]).astype(np.int64))
        limit_by_category += [limit] * values["value"].n_unique()
    ordered = np.concatenate(pairs) if pairs else np.empty((0, 2), dtype=np.int64)
    ordered = ordered[np.lexsort((ordered[:, 1], ordered[:, 0]))]
    np.cumsum(np.bincount(ordered[:, 0], minlength=len(items)), out=indptr[1:])
    return indptr, ordered[:, 1].astype(np.int32), np.array(limit_by_category, dtype=np.int32)
