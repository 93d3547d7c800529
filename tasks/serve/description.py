"""The page `/docs`: the OpenAPI description for people, with links to try. It needs no network, unlike FastAPI's own."""

from typing import Any
from urllib.parse import urlencode

from oneclass.tasks.html.templates import load_template
from oneclass.tasks.recommend import Recommender

NUM_EXAMPLES = 2  # items of a history in a link


def render_api_page(openapi: dict[str, Any], recommender: Recommender) -> str:
    """The page's text."""
    addresses = [
        _render_endpoint(path, of["get"], openapi["components"]["schemas"]) for path, of in openapi["paths"].items()
    ]
    return load_template("oneclass.tasks.serve", "docs.html").render(
        info=openapi["info"], addresses=addresses, tries=_example_urls(recommender), publication=recommender.publication
    )


def _render_endpoint(path: str, described: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    content = described["responses"]["200"].get("content", {}).get("application/json", {})
    answer = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return {
        "path": path,
        "what": described["description"],
        "parameters": [
            {
                "name": one["name"],
                "required": one.get("required", False),
                "kind": _type_name(one["schema"]),
                "default": one["schema"].get("default"),
                "what": one.get("description", ""),
            }
            for one in described.get("parameters", [])
        ],
        "fields": [
            {"name": name, "kind": _type_name(field)}
            for name, field in schemas.get(answer, {}).get("properties", {}).items()
        ],
    }


def _type_name(schema: dict[str, Any]) -> str:
    """A type in a word: text, a number, a list of either, or one of several."""
    if "anyOf" in schema:
        return " or ".join(_type_name(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if schema.get("type") == "array":
        return f"{_type_name(schema['items'])}, any number of them"
    bounds = [f"{word} {schema[key]:,}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    return " ".join(["text" if schema["type"] == "string" else schema["type"], *bounds])


def _example_urls(recommender: Recommender) -> dict[str, list[str]]:
    """Addresses that answer, by path."""
    items, users = (
        recommender.items["item_id"].head(NUM_EXAMPLES).to_list(),
        recommender.users["user_id"].head(1).to_list(),
    )
    asked = {
        "/recommend": [{"user": user, "n": 5} for user in users] + [{"item": items, "n": 5}],
        "/similar": [{"item": item, "n": 5} for item in items[:1]],
    }
    return {path: [f"{path}?{urlencode(query, doseq=True)}" for query in queries] for path, queries in asked.items()}
