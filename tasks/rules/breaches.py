"""Find what published lists do against the rules, by statements that share no code with the selection of lists."""

import duckdb
import polars as pl

from oneclass import sql
from oneclass.tasks.attributes import Attributes
from oneclass.tasks.rules.conditions import USER_PREFIX, Catalogue
from oneclass.tasks.rules.lists import load_catalogue
from oneclass.tasks.rules.selection import Selector
from oneclass.tasks.rules.settings import DeclaredRules
from oneclass.tasks.stores import warehouse

EXPLORATION = "(exploration)"  # stands for a placement


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
