"""Build the selections of all users from the warehouse, to publish lists by rules."""

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.tasks.attributes import Attributes
from oneclass.tasks.rules.selection import Catalogue, Selection, Selector, compile_rules
from oneclass.tasks.rules.settings import DeclaredRules
from oneclass.tasks.stores import warehouse

ListSelections = dict[str | None, Selection]  # by placement; None is the list of `published.recommendations`


def has_new_items(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether there are items that nobody likes, which the table of attributes has."""
    return warehouse.select(connection, "split/new_item_ids").height > 0


def load_selections(
    connection: duckdb.DuckDBPyConnection,
    declared: DeclaredRules,
    attributes: Attributes,
    top_n: int,
    *,
    exclude_seen: bool,
) -> ListSelections:
    """Return how all users get their lists, in the order of the indices.

    Args:
        top_n: items of a list, unless its placement says how many.

    Raises:
        InputError: a rule names a column that the tables of attributes do not have.
    """
    users, catalogue = warehouse.select(connection, "rules/users"), load_catalogue(connection, attributes)
    described = catalogue.describe_users(users["user_id"], users["items"])
    excluded = load_excluded(connection, declared, len(users), len(catalogue.item_ids))
    selections: ListSelections = {}
    for name in (None, *declared.placements):
        compiled = compile_rules(declared, catalogue.item_kinds, catalogue.user_kinds, name)
        placement = declared.placements.get(name or "")
        n = placement and placement.n or top_n
        diversity, max_new = placement and placement.diversity, declared.count_new(n)
        sets, constraints = Selector(compiled, catalogue, max_new).constrain(described)
        selections[name] = Selection(n, constraints, sets, excluded, exclude_seen, diversity, max_new)
    return selections


def find_eligible_items(
    connection: duckdb.DuckDBPyConnection, declared: DeclaredRules, attributes: Attributes
) -> np.ndarray:
    """Return bool (items,), the items that everybody may see: those that a user may who is not known."""
    catalogue = load_catalogue(connection, attributes)
    selector = Selector(compile_rules(declared, catalogue.item_kinds, catalogue.user_kinds), catalogue)
    nobody = catalogue.describe_users(pl.Series([None], dtype=pl.String), pl.Series([0]))
    return selector.find_eligible_items(nobody)


def load_catalogue(connection: duckdb.DuckDBPyConnection, attributes: Attributes) -> Catalogue:
    """Return the items that are liked or new, by index, with the attributes."""
    items = warehouse.select(connection, "rules/items")
    return Catalogue(items["item_id"], items["users"], attributes)


def load_excluded(
    connection: duckdb.DuckDBPyConnection, declared: DeclaredRules, users: int, items: int
) -> csr_matrix | None:
    """Return (users, items), what `not_event` and `again_after_days` keep from each user; None without these rules."""
    kinds, days = list(declared.rules.not_event), declared.rules.again_after_days
    if not kinds and days is None:
        return None
    rows, columns = (
        column.to_numpy() for column in warehouse.select(connection, "rules/excluded", kinds=kinds, days=days)
    )
    found = csr_matrix((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(users, items))
    found.sort_indices()
    return found
