"""Load the page templates, with the globals and filters that all of them use."""

import re
from importlib.resources import files

import jinja2
from markupsafe import Markup

from oneclass.tasks.html import numbers
from oneclass.tasks.terminal import escape_controls

STYLE = files("oneclass.tasks.html").joinpath("style.css").read_text(encoding="utf-8")
_THEMES = re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\)", STYLE)
LIGHT_COLOURS = {name: light for name, light, _ in _THEMES}
DARK_COLOURS = {name: dark for name, _, dark in _THEMES}


def load_template(package: str, name: str) -> jinja2.Template:
    """Load a template of a package such as `oneclass.tasks.report`. It may extend or include those there or in this
    package.

    Values are escaped, and an undefined name raises `jinja2.UndefinedError`.
    """
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(one, "") for one in (package, "oneclass.tasks.html")]),
    )
    environment.globals |= {"style": Markup(STYLE), "number": numbers}  # pyright: ignore[reportAttributeAccessIssue]
    environment.filters["printable"] = escape_controls
    return environment.get_template(name)
