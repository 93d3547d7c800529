"""Build the selections of all users from the warehouse, and find what published lists do against the rules.

Breaches are found by statements that share no code with the selection of lists.
"""

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass import sql
from oneclass.tasks.attributes import Attributes
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.rules.conditions import ITEM_USERS, USER_PREFIX, Catalogue
from oneclass.tasks.rules.selection import Selection, Selector
from oneclass.tasks.rules.settings import DeclaredRules
from oneclass.tasks.stores import warehouse

ListSelections = dict[str | None, Selection]  # by placement; None is the list of `published.recommendations`
MIN_LACKING_SHARE = 0.05  # of all likes, on items that only the table of items keeps from the lists
EXPLORATION = "(exploration)"  # stands for a placement


def check_rules(declared: DeclaredRules, attributes: Attributes) -> None:
    """Check the rules of a data set on its tables of attributes, before there is a log; InputError names the fault."""
    item_ids = attributes["item"]["item_id"] if "item" in attributes else pl.Series(["of no table"])
    catalogue = Catalogue(item_ids, pl.Series([1] * len(item_ids), dtype=pl.Int64), attributes)
    for name in (None, *declared.placements):
        Selector(declared, catalogue, name, 1).find_eligible_items()
    for column in declared.rules.request_filters:
        if column not in (known := [*catalogue.item_types, *catalogue.user_types]):
            raise InputError(f"[rules] request_filters: column {column} does not exist; known: {', '.join(known)}.")


def load_selections(
    connection: duckdb.DuckDBPyConnection,
    declared: DeclaredRules,
    attributes: Attributes,
    top_n: int,
    *,
    exclude_seen: bool,
) -> tuple[ListSelections, list[str]]:
    """Return how all users get their lists, in the order of the indices, and what a person should know of the rules.

    Raises:
        InputError: a rule names a column that the tables of attributes do not have.
        OneclassError: the table of items has none of the items that users like, or the rules of all lists leave none.
    """
    users, catalogue = warehouse.select(connection, "rules/users"), load_catalogue(connection, attributes)
    described = catalogue.describe_users(users["user_id"], users["items"])
    excluded = _load_excluded(connection, declared, len(users), len(catalogue.item_ids))
    selections: ListSelections = {}
    for name in (None, *declared.placements):
        selector = Selector(declared, catalogue, name, declared.count_items(name, top_n))
        selections[name] = selector.select(len(users), lambda: described, excluded=excluded, exclude_seen=exclude_seen)
    return selections, _require_items(catalogue, declared, selections)


def _require_items(catalogue: Catalogue, declared: DeclaredRules, selections: ListSelections) -> list[str]:
    """Return sentences on items that no list has because the table of items lacks them, and on empty placements."""
    allowed = {name: selection.constraints.eligible.any(axis=0) for name, selection in selections.items()}
    users, described = catalogue.items[ITEM_USERS].to_numpy(), catalogue.described
    liked, lacking = int((users > 0).sum()), users * (False if described is None else ~described)
    count, example = int((lacking > 0).sum()), catalogue.item_ids[int(lacking.argmax())]
    advice = "Write the ids in the table as the log does, with any leading zeros (as text, not as numbers)"
    if described is not None and count == liked:
        raise OneclassError(
            f"[items]: 0 of the {liked:,} items that users like are in its table (it lacks {example}, for one), so its "
            f"rules can name none of them; nothing is published. {advice}, and run again."
        )
    if not (allowed[None] & (users > 0)).any():
        raise OneclassError(
            f"[rules] eligible = {declared.rules.eligible!r}: allows 0 of {liked:,} items ({liked - count:,} of them "
            "in the table of items); nothing is published. Correct the condition or the table, and run again."
        )
    empty = [name for name in allowed if not allowed[name].any()]
    gaps = [f"[placements.{name}]: its rules allow no item; its lists are empty." for name in empty]
    share = (lacking * ~allowed[None]).sum() / users.sum()
    if share >= MIN_LACKING_SHARE:
        gaps.append(
            f"[items]: its table lacks {count:,} of the {liked:,} items that users like ({example}, for one), and the "
            f"rules leave them out of all lists, with {share:.1%} of all likes. Add those that are sold. {advice}."
        )
    return gaps


def find_eligible_items(
    connection: duckdb.DuckDBPyConnection, declared: DeclaredRules, attributes: Attributes
) -> np.ndarray:
    """Return bool (items,), the items that everybody may see: those that a user may who is not known."""
    return Selector(declared, load_catalogue(connection, attributes), None, 0).find_eligible_items()


def load_catalogue(connection: duckdb.DuckDBPyConnection, attributes: Attributes) -> Catalogue:
    """Return the items that are liked or new, by index, with the attributes."""
    items = warehouse.query(connection, "select item_id, users from curated.items order by item_index")
    return Catalogue(items["item_id"], items["users"], attributes)


def _load_excluded(
    connection: duckdb.DuckDBPyConnection, declared: DeclaredRules, users: int, items: int
) -> csr_matrix | None:
    """Return (users, items), what `not_event` and `again_after_days` keep from each user; None without these rules."""
    kinds, days = list(declared.rules.not_event), declared.rules.again_after_days
    if not kinds and days is None:
        return None
    rows, columns = warehouse.select(connection, "rules/excluded", kinds=kinds, days=days).to_numpy().T
    found = csr_matrix((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(users, items))
    found.sort_indices()
    return found


def find_breaches(
    connection: duckdb.DuckDBPyConnection, declared: DeclaredRules | None, attributes: Attributes, top_n: int
) -> None:
    """Fill the temporary table `rule_breaches`, which the contract of that name reads, from the published lists.

    Args:
        declared: None for lists that no rule was applied to.
    """
    connection.execute(sql.statement("rules/rule_breaches"))
    if declared is None:
        return
    rules, catalogue = declared.rules, load_catalogue(connection, attributes)
    users = warehouse.select(connection, "rules/users")
    described = catalogue.describe_users(users["user_id"], users["items"])
    connection.register("rule_items", catalogue.items)
    connection.register("rule_users", described.rename(lambda name: name.removeprefix(USER_PREFIX)))
    connection.execute(sql.statement("rules/ruled_lists"))
    connection.execute(sql.statement("rules/rule_histories"), {"days": rules.again_after_days})
    connection.execute(sql.statement("rules/rule_events"), {"kinds": list(rules.not_event)})
    for name in (None, EXPLORATION, *declared.placements):
        placement = None if name == EXPLORATION else name
        n = declared.count_items(placement, top_n)
        selector = Selector(declared, catalogue, placement, n)
        # DuckDB wrote them from checked syntax trees.
        condition = " and ".join(f"({one.sql})" for one in selector.conditions) or "true"
        _store_categories(connection, catalogue, selector.limits)
        bounds = {"placement": name, "banned": list(rules.banned), "pinned": list(rules.pinned)}
        statement = sql.statement("rules/breaches", condition=condition)
        connection.execute(statement, {**bounds, "max_new": declared.count_new(n)})
    connection.unregister("rule_items").unregister("rule_users")


def _store_categories(connection: duckdb.DuckDBPyConnection, catalogue: Catalogue, limits: dict[str, int]) -> None:
    """Fill the temporary table `rule_categories`: one row per item and value of a column with a limit, `most`."""
    parts = [pl.DataFrame(schema={"item_id": pl.String, "name": pl.String, "value": pl.String, "most": pl.Int64})]
    for name, most in limits.items():
        values = catalogue.items.select("item_id", pl.lit(name).alias("name"), pl.col(name).alias("value"))
        values = values.explode("value") if catalogue.item_types[name] == "varchar[]" else values
        parts.append(values.drop_nulls().unique().with_columns(pl.lit(most, pl.Int64).alias("most")))
    connection.register("incoming", pl.concat(parts))
    connection.execute(sql.statement("rules/rule_categories"))
    connection.unregister("incoming")
