"""Apply the rules of a publication, and the filters of a request, to users who ask."""

import functools
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.tasks.errors import InputError
from oneclass.tasks.rules.conditions import ITEM_USERS, Catalogue, Condition
from oneclass.tasks.rules.selection import Selection, Selector
from oneclass.tasks.rules.settings import DeclaredRules
from oneclass.tasks.stores.matrices import csr_view
from oneclass.tasks.stores.published_model import PublishedModel

DEFAULT_COUNT = 20
MAX_FILTER_CHARACTERS = 1000
CACHED_FILTERS = 256
CACHED_SELECTORS = 64
CACHED_STRANGERS = 1024  # by the length of the history


class ListRequest(NamedTuple):
    """What a request asks of its list.

    Attributes:
        where: a condition on the items.
        within, without: columns to choose among, and columns to leave out.
    """

    placement: str | None = None
    where: str | None = None
    within: np.ndarray | None = None
    without: np.ndarray | None = None


NO_REQUEST = ListRequest()


class PublishedRules:
    """The rules of a publication.

    Attributes:
        declared: as the data set's file states them.
        catalogue: the items that can be in lists, and the columns that rules and filters may name.
    """

    def __init__(self, published: PublishedModel) -> None:
        self.declared, self._published = DeclaredRules.model_validate(published.rules), published
        items = published.items
        self.catalogue = Catalogue(items["item_id"], items["users"], published.attributes)
        self._build_selector = functools.lru_cache(maxsize=CACHED_SELECTORS)(
            lambda placement, n: Selector(self.declared, self.catalogue, placement, n)
        )
        self._describe_stranger = functools.lru_cache(maxsize=CACHED_STRANGERS)(self.catalogue.describe_stranger)
        self._check_filter = functools.lru_cache(maxsize=CACHED_FILTERS)(self._parse_filter)

    def check_request(self, placement: str | None, where: str | None, *, any_column: bool = True) -> None:
        """Check the placement and the filter of a request.

        Args:
            any_column: whether the filter may name all columns, or those of `request_filters` only.

        Raises:
            InputError: there is no such placement, or the filter is no condition on columns that it may name.
        """
        if placement is not None and placement not in self.declared.placements:
            known = ", ".join(self.declared.placements)
            hint = f"known: {known}" if known else "the data set has none under [placements.NAME]"
            raise InputError(f"placement {placement}: does not exist; {hint}.")
        if where is None:
            return
        if len(where) > MAX_FILTER_CHARACTERS:
            raise InputError(f"where: has {len(where):,} characters, more than {MAX_FILTER_CHARACTERS:,}.")
        found = self._check_filter(where)
        allowed = self.declared.rules.request_filters
        refused = sorted({*found.item_columns, *found.user_columns}.difference(allowed))
        if refused and not any_column:
            known = f"those are {', '.join(allowed)}" if allowed else "it has none"
            raise InputError(
                f"where = {where!r}: a request may not name the column {refused[0]}, only those of `request_filters` "
                f"under [rules] in the data set's file; {known}."
            )

    def count_items(self, placement: str | None) -> int:
        """Return how many items a list has by default."""
        return self.declared.count_items(placement, DEFAULT_COUNT)

    def select(
        self,
        histories: csr_matrix,
        n: int,
        request: ListRequest = NO_REQUEST,
        *,
        rows: np.ndarray | None,
        user_ids: pl.Series | None = None,
        exclude_seen: bool = True,
    ) -> Selection:
        """Return how users get their lists.

        Args:
            rows: of the users in the publication; None for histories that are given. Their items' times are unknown, so
                `again_after_days` keeps all of them from the list.
            user_ids: of given histories, if they have any.
        """
        placement, where, within, without = request
        self.check_request(placement, where)
        if rows is None:
            exclude_seen = exclude_seen or self.declared.rules.again_after_days is not None
        condition = None if where is None else self._check_filter(where)
        selector = self._build_selector(placement, n)
        if condition is not None and condition.user_columns:
            selector = selector.narrow(condition)
        selection = selector.select(
            histories.shape[0],
            lambda: self._describe_users(histories, rows, user_ids),
            excluded=self._find_excluded(rows),
            exclude_seen=exclude_seen,
        )
        if condition is not None and not condition.user_columns:
            selection = selection.restrict(self.catalogue.find_items(condition, {})[0])
        if within is not None or without is not None:
            allowed = np.full(len(self.catalogue.item_ids), within is None)
            allowed[within if within is not None else []] = True
            allowed[without if without is not None else []] = False
            selection = selection.restrict(allowed)
        return selection

    @functools.cached_property
    def eligible_items(self) -> np.ndarray:
        """bool (items,), the items that the rules of all lists allow everybody."""
        return self._build_selector(None, DEFAULT_COUNT).find_eligible_items()

    def find_allowed_items(self, row: int, history: csr_matrix, *, exclude_seen: bool) -> np.ndarray:
        """Return bool (items,), the items that may be in the list of a user of the publication."""
        selection = self.select(history, DEFAULT_COUNT, rows=np.array([row]), exclude_seen=exclude_seen)
        allowed = selection.constraints.eligible[0].copy()
        allowed[selection.find_excluded(history)[1]] = False
        return allowed

    def find_objections(self, row: int, column: int, listed: np.ndarray) -> list[str]:
        """Return in words which rules of all lists keep an item out of the list of a user of the publication.

        Args:
            listed: the columns of the list.
        """
        rules, items, users = self.declared.rules, self.catalogue.items, self._users[[row]]
        values = {**items.row(column, named=True), **users.row(0, named=True)}
        selector = self._build_selector(None, max(len(listed), 1))
        objections = ["[rules] banned names it"] if values["item_id"] in rules.banned else []
        for condition in selector.conditions:
            if not self.catalogue.find_items(condition, users.to_dict(as_series=False))[0, column]:
                named = (*condition.item_columns, *condition.user_columns)
                shown = ", ".join(f"{name} = {values[name]}" for name in named).replace(" = None", " is unknown")
                objections.append(f"it is not eligible: {condition}, and {shown}")
        excluded = self._find_excluded(np.array([row]))
        if excluded is not None and column in excluded.indices:
            kept = [name for name in ("not_event", "again_after_days") if getattr(rules, name)]
            objections.append(f"[rules] {' or '.join(kept)} keeps it from them")
        if objections:
            return objections
        for name, most in selector.limits.items():
            columns = [column, *listed]
            own, *others = (_list_values(value) for value in items[name][columns].to_list())
            for value in own:
                if (count := sum(value in one for one in others)) >= most:
                    objections.append(f"the list has {count} of {name} = {value}, as [rules] max_per_category allows")
        new = int((items[ITEM_USERS][listed] == 0).sum())
        if values[ITEM_USERS] == 0 and new >= self.declared.count_new(len(listed)):
            objections.append(f"nobody likes it yet, and the list has {new} such items, as publish.cold_share allows")
        return objections

    def _describe_users(
        self, histories: csr_matrix, rows: np.ndarray | None, user_ids: pl.Series | None
    ) -> pl.DataFrame:
        """Return the user columns of those who ask, as `Catalogue.describe_users`."""
        if rows is not None:
            return self._users[rows]
        if user_ids is None:
            return pl.concat([self._describe_stranger(count) for count in np.diff(histories.indptr).tolist()])
        return self.catalogue.describe_users(user_ids, pl.Series(np.diff(histories.indptr)))

    def _find_excluded(self, rows: np.ndarray | None) -> csr_matrix | None:
        """Return what rules keep from users of the publication."""
        excluded = self._published.excluded
        if excluded is None or rows is None:
            return None
        if len(rows) > 1:
            return excluded[rows]
        # A view, because scipy's indexing takes longer than the rest of a request's rules.
        start, stop = excluded.indptr[rows[0] : rows[0] + 2]
        indptr, width = np.array([0, stop - start], dtype=excluded.indices.dtype), len(self._published.items)
        return csr_view(excluded.data[start:stop], excluded.indices[start:stop], indptr, width)

    def _parse_filter(self, where: str) -> Condition:
        condition = self.catalogue.check_condition(where, "where")
        self.catalogue.find_items(condition, self._describe_stranger(0).to_dict(as_series=False))
        return condition

    @functools.cached_property
    def _users(self) -> pl.DataFrame:
        """The user columns of the users of the publication."""
        counts = pl.Series(np.diff(self._published.histories.indptr))
        return self.catalogue.describe_users(self._published.users["user_id"], counts)


def _list_values(value: str | list[str] | None) -> list[str]:
    return value if isinstance(value, list) else [] if value is None else [value]
