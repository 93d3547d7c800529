"""Find what published lists do against the rules, by statements that share no code with the selection of lists."""

from typing import Any

import duckdb
import polars as pl

from oneclass import sql
from oneclass.tasks.attributes import Attributes, Side
from oneclass.tasks.rules.expressions import check_expression, normalize_types
from oneclass.tasks.rules.selection import rule_columns
from oneclass.tasks.rules.settings import DeclaredRules, placement_rules
from oneclass.tasks.stores import warehouse

EXPLORATION = "(exploration)"  # stands for a placement
CHECKED_SHORT_LISTS = 100  # of each placement; each is compared with the whole catalogue


def find_breaches(
    connection: duckdb.DuckDBPyConnection,
    declared: DeclaredRules | None,
    attributes: Attributes,
    top_n: int,
    *,
    seen_items: bool,
) -> None:
    """Fill the temporary table `rule_breaches`, which the contract of that name reads, from the published lists.

    DuckDB evaluates the conditions, as it wrote them itself from the checked syntax trees.

    Args:
        declared: None for lists that no rule was applied to.
        seen_items: whether lists include the items of the histories.
    """
    connection.execute(sql.statement("rules/rule_breaches"))
    if declared is None:
        return
    rules = declared.rules
    connection.execute(sql.statement("rules/ruled_lists"))
    sides: dict[Side, str] = {"item": "rules/rule_items", "user": "rules/rule_users"}
    for side, statement in sides.items():
        table = attributes.get(side, pl.DataFrame(schema={f"{side}_id": pl.String}))
        connection.register("attributes", normalize_types(table))
        connection.execute(sql.statement(statement))
        connection.unregister("attributes")
    connection.execute(sql.statement("rules/rule_histories"), {"days": rules.again_after_days})
    connection.execute(sql.statement("rules/rule_events"), {"kinds": list(rules.not_event)})
    kinds = rule_columns(attributes)
    explored = [EXPLORATION] if warehouse.fetch_row(connection, "select count(*) from published.exploration")[0] else []
    for name in (None, *explored, *declared.placements):
        placement = declared.placements.get(name or "")
        texts = [layer.eligible for layer in (rules, placement) if layer is not None and layer.eligible]
        conditions = [check_expression(text, "eligible", *kinds).sql for text in texts]
        condition = " and ".join(f"({one})" for one in conditions) or "true"
        _store_categories(connection, placement_rules(rules, placement).max_per_category, kinds[0])
        shared: dict[str, Any] = {"placement": name, "banned": list(rules.banned)}
        statement = sql.statement("rules/breaches", condition=condition)
        n = (placement and placement.n) or top_n
        shared["max_new"] = declared.count_new(n)
        connection.execute(statement, {**shared, "pinned": list(rules.pinned)})
        statement = sql.statement("rules/short_lists", condition=condition)
        bounds = {"n": n, "lists": CHECKED_SHORT_LISTS, "seen_items": seen_items}
        connection.execute(statement, {**shared, **bounds})


def _store_categories(connection: duckdb.DuckDBPyConnection, limits: dict[str, int], kinds: Any) -> None:
    """Fill the temporary table `rule_categories`: one row per item and value of a column with a limit, `most`."""
    items = warehouse.query(connection, "from rule_items")
    parts = [pl.DataFrame(schema={"item_id": pl.String, "name": pl.String, "value": pl.String, "most": pl.Int64})]
    for name, most in limits.items():
        values = items.select("item_id", pl.lit(name).alias("name"), pl.col(name).alias("value"))
        values = values.explode("value") if kinds[name] == "texts" else values
        parts.append(values.drop_nulls().unique().with_columns(pl.lit(most, pl.Int64).alias("most")))
    connection.register("incoming", pl.concat(parts))
    connection.execute(sql.statement("rules/rule_categories"))
    connection.unregister("incoming")
