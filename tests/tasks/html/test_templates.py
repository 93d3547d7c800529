"""Every template parses, and uses only the formatters that exist."""

from importlib.resources import files

import jinja2
import pytest
from jinja2 import nodes

from oneclass.tasks.html import numbers
from oneclass.tasks.html.templates import load_template

TEMPLATES = {
    (package, file.name)
    for package in ("explain", "home_page", "html", "report")
    for file in files(f"oneclass.tasks.{package}").iterdir()
    if file.name.endswith(".html")
}


@pytest.mark.parametrize(("package", "name"), sorted(TEMPLATES))
def test_a_template_uses_only_formatters_that_exist(package, name):
    environment = load_template(f"oneclass.tasks.{package}", name).environment
    assert environment.undefined is jinja2.StrictUndefined
    source, _, _ = environment.loader.get_source(environment, name)
    used = {
        node.attr
        for node in environment.parse(source).find_all(nodes.Getattr)
        if isinstance(node.node, nodes.Name) and node.node.name == "number"
    }
    assert all(callable(getattr(numbers, function, None)) for function in used), used
