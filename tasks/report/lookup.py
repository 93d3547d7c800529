"""The page beside the report that finds users and items, with its data and script inside."""

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from oneclass.tasks.html.templates import load_template
from oneclass.tasks.report.run_tables import RunTables
from oneclass.tasks.stores import published_model
from oneclass.tasks.stores.home import Home

MOST_SEARCHED = 20_000  # users, and items: those with the most likes, so that the page stays below a few MB


def build_search_page(tables: RunTables, home: Home) -> str:
    """Build the page that finds a user's published list or an item by id or title."""
    items = tables.as_rows("searched_items", most=MOST_SEARCHED)
    users = tables.as_rows("searched_users", most=MOST_SEARCHED)
    position = {row["item_id"]: at for at, row in enumerate(items)}
    for item in dict.fromkeys(item for row in users for item in row["items"] if item not in position):
        position[item] = len(items)
        items.append({"item_id": item, "likes": None, "lists": None})
    titles = published_model.load_titles(home, set(position))
    data = {
        "items": [[row["item_id"], titles.get(row["item_id"], ""), row["likes"], row["lists"]] for row in items],
        "users": [[row["user_id"], row["likes"], [position[item] for item in row["items"]]] for row in users],
    }
    return _render(home, "search", data, complete=max(len(users), len(items)) < MOST_SEARCHED)


def _render(home: Home, name: str, data: dict[str, Any], **more: object) -> str:
    script = files("oneclass.tasks.report").joinpath(f"{name}.js").read_text(encoding="utf-8")
    return load_template("oneclass.tasks.report", f"{name}.html").render(
        dataset=home.dataset,
        # A closing tag in a title must not end the element.
        data=Markup(json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")),
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **more,
    )
