"""Render the page `/docs` from the OpenAPI description, with example links and forms to try each address.

It works offline, unlike FastAPI's own; without scripts it has the links and no forms.
"""

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from oneclass.tasks.html.templates import load_template
from oneclass.tasks.recommend import Recommender

NUM_EXAMPLES = 2  # items of the history in an example
LIST_INPUTS = 3  # fields of a form for a parameter that takes any number of values
EXAMPLE_COUNT = 5


def render_api_page(openapi: dict[str, Any], recommender: Recommender) -> str:
    """Return the page's HTML."""
    schemas, examples = openapi["components"]["schemas"], _example_queries(recommender)
    script = files("oneclass.tasks.serve").joinpath("try.js").read_text(encoding="utf-8")
    return load_template("oneclass.tasks.serve", "docs.html").render(
        info=openapi["info"],
        endpoints=[
            _describe_endpoint(path, method.upper(), operation, schemas, examples.get(path, [{}]))
            for path, methods in openapi["paths"].items()
            for method, operation in methods.items()
        ],
        publication=recommender.publication,
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        sends_requests=True,
    )


def _describe_endpoint(
    path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any], queries: list[dict[str, Any]]
) -> dict[str, Any]:
    content = operation["responses"]["200"].get("content", {}).get("application/json", {})
    response = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    parameters, is_get = operation.get("parameters", []), method == "GET"
    return {
        "path": path,
        "method": method,
        "anchor": path.strip("/") if is_get else f"{method.lower()}-{path.strip('/')}",
        "description": operation["description"],
        "examples": [_build_url(path, query) for query in queries] if is_get else [],
        "is_form": is_get and "{" not in path,
        "body": None if is_get else _example_body(queries),
        "parameters": [
            {
                "name": parameter["name"],
                "required": parameter.get("required", False),
                "type": _type_name(parameter["schema"]),
                "default": parameter["schema"].get("default"),
                "description": parameter.get("description", ""),
                "inputs": _list_inputs(parameter, queries[0]),
            }
            for parameter in parameters
        ],
        "fields": [
            {"name": name, "type": _type_name(field)}
            for name, field in schemas.get(response, {}).get("properties", {}).items()
        ],
    }


def _list_inputs(parameter: dict[str, Any], query: dict[str, Any]) -> list[Any]:
    """Return the values with which the fields of a parameter begin."""
    value = query.get(parameter["name"], "")
    if "any number" not in _type_name(parameter["schema"]):
        return [value]
    values = value if isinstance(value, list) else []
    return [*values, *[""] * (LIST_INPUTS - len(values))]


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


def _build_url(path: str, query: dict[str, Any]) -> str:
    return f"{path.format(name='popular')}{'?' if query else ''}{urlencode(query, doseq=True)}"


def _example_body(queries: list[dict[str, Any]]) -> str:
    """Return the JSON of a batch that asks what the example links ask one by one."""
    readers = [{"user": query["user"]} if "user" in query else {"items": query["item"]} for query in queries]
    return json.dumps({"queries": readers, "n": EXAMPLE_COUNT})


def _example_queries(recommender: Recommender) -> dict[str, list[dict[str, Any]]]:
    """Return queries with existing ids, by path."""
    items = recommender.items["item_id"].head(NUM_EXAMPLES).to_list()
    users, n = recommender.users["user_id"].head(1).to_list(), EXAMPLE_COUNT
    return {
        "/recommend": [{"user": user, "n": n} for user in users] + [{"item": items, "n": n}],
        "/similar": [{"item": item, "n": n} for item in items[:1]],
        **{path: [{"n": n}] for path in ("/popular", "/trending", "/new", "/lists/{name}")},
    }
