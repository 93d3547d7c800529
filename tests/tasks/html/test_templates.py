"""Every template parses, uses only the formatters that exist, and renders without an undefined name."""

from datetime import datetime
from importlib.resources import files

import jinja2
import pytest
from jinja2 import nodes

from oneclass.tasks import home_page
from oneclass.tasks.explain import views
from oneclass.tasks.explain.explanation import Explanation, HistoryItem, PublishedList, RecommendedItem
from oneclass.tasks.html import numbers
from oneclass.tasks.html.templates import load_template
from oneclass.tasks.stores.home import Home

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


def test_pages_render_without_an_undefined_name(tmp_path):
    """The report's templates are rendered by `tests/tasks/report`."""
    home = Home(tmp_path, "small")
    listed = PublishedList("wmf", "like", [RecommendedItem("i1", 1.5, 20, (0.5, 0.1), (("i9", 0.25),), True)])
    history = [HistoryItem(f"i{number}", datetime(2026, 11, 20), 5) for number in range(30)]
    explanation = Explanation("small", "u1", history, listed, ["i3: rank 4 of 20."], {"i1": "A <b>"})
    page = views.write_user_page(home, explanation).read_text()
    assert "i3: rank 4 of 20." in page and "30\N{NO-BREAK SPACE}likes" in page and "A &lt;b&gt;" in page
    home_page.store_run_facts(home, shown={"look": 2}, ended={"state": "failed", "at": "2026-11-20T03:00:00Z"})
    home_page.write_home_page(home)
    assert "2\N{NO-BREAK SPACE}warnings" in (tmp_path / "index.html").read_text()
