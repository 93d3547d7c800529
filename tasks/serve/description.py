"""Render the page `/docs` from the OpenAPI description, with example links. It works offline, unlike FastAPI's own."""

from typing import Any
from urllib.parse import urlencode

from oneclass.tasks.html.templates import load_template
from oneclass.tasks.recommend import Recommender

NUM_EXAMPLES = 2  # items of the history in an example link


def render_api_page(openapi: dict[str, Any], recommender: Recommender) -> str:
    """Return the page's HTML."""
    schemas = openapi["components"]["schemas"]
    return load_template("oneclass.tasks.serve", "docs.html").render(
        info=openapi["info"],
        endpoints=[_describe_endpoint(path, methods["get"], schemas) for path, methods in openapi["paths"].items()],
        examples=_example_urls(recommender),
        publication=recommender.publication,
    )


def _describe_endpoint(path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    content = operation["responses"]["200"].get("content", {}).get("application/json", {})
    response = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return {
        "path": path,
        "description": operation["description"],
        "parameters": [
            {
                "name": parameter["name"],
                "required": parameter.get("required", False),
                "type": _type_name(parameter["schema"]),
                "default": parameter["schema"].get("default"),
                "description": parameter.get("description", ""),
            }
            for parameter in operation.get("parameters", [])
        ],
        "fields": [
            {"name": name, "type": _type_name(field)}
            for name, field in schemas.get(response, {}).get("properties", {}).items()
        ],
    }


def _type_name(schema: dict[str, Any]) -> str:
    """Name a type: text, a number, a list of either, or one of several."""
    if "anyOf" in schema:
        return " or ".join(_type_name(option) for option in schema["anyOf"] if option.get("type") != "null")
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if schema.get("type") == "array":
        return f"{_type_name(schema['items'])}, any number of them"
    bounds = [f"{word} {schema[key]:,}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    return " ".join(["text" if schema["type"] == "string" else schema["type"], *bounds])


def _example_urls(recommender: Recommender) -> dict[str, list[str]]:
    """Return URLs with existing ids, by path."""
    items = recommender.items["item_id"].head(NUM_EXAMPLES).to_list()
    users = recommender.users["user_id"].head(1).to_list()
    examples = {
        "/recommend": [{"user": user, "n": 5} for user in users] + [{"item": items, "n": 5}],
        "/similar": [{"item": item, "n": 5} for item in items[:1]],
        "/lists/{name}": [{"n": 5}],
    }
    return {
        path: [f"{path.format(name='popular')}?{urlencode(query, doseq=True)}" for query in queries]
        for path, queries in examples.items()
    }
