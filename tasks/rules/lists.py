"""Build the selections of all users from the warehouse, to publish lists by rules."""

import duckdb
import numpy as np
from scipy.sparse import csr_matrix

from oneclass.tasks.attributes import load_attributes
from oneclass.tasks.rules.selection import Catalogue, Selection, Selector, compile_rules
from oneclass.tasks.rules.settings import DeclaredRules
from oneclass.tasks.stores import warehouse

ListSelections = dict[str | None, Selection]  # by placement; None is the list of `published.recommendations`


def load_selections(
    connection: duckdb.DuckDBPyConnection, declared: DeclaredRules, top_n: int, *, exclude_seen: bool
) -> ListSelections:
    """Return how all users get their lists, in the order of the indices.

    Args:
        top_n: items of a list, unless its placement says how many.

    Raises:
        InputError: a rule names a column that the tables of attributes do not have.
    """
    items = warehouse.select(connection, "published/items")
    users = warehouse.select(connection, "rules/users")
    attributes = load_attributes(connection, "item"), load_attributes(connection, "user")
    catalogue = Catalogue(items["item_id"], items["users"], *attributes)
    described = catalogue.describe_users(users["user_id"], users["items"])
    excluded = load_excluded(connection, declared, len(users), len(items))
    selections: ListSelections = {}
    for name in (None, *declared.placements):
        compiled = compile_rules(declared, catalogue.item_kinds, catalogue.user_kinds, name)
        sets, constraints = Selector(compiled, catalogue).constrain(described)
        n = top_n if name is None else declared.placements[name].n or top_n
        selections[name] = Selection(n, constraints, sets, excluded, exclude_seen)
    return selections


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
