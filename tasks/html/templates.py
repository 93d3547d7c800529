"""Load the page templates, with the globals and filters that all of them use."""

import functools
from importlib.resources import files

import jinja2
from markupsafe import Markup

from oneclass.tasks.html import numbers
from oneclass.tasks.terminal import escape_controls

LIGHT_COLOURS = {
    "ink": "#1f2430",
    "soft": "#5b6270",
    "faint": "#b9bec8",
    "line": "#dfe2e8",
    "paper": "#fdfdfe",
    "blue": "#0062b0",
    "orange": "#dd6410",
    "green": "#008a60",
    "pink": "#c757a0",
    "gold": "#6e5300",
    "sky": "#259ad3",
    "wine": "#6b1232",
}
DARK_COLOURS = {
    "ink": "#e7e9ee",
    "soft": "#a3aab8",
    "faint": "#5a6170",
    "line": "#343a46",
    "paper": "#14171d",
    "blue": "#4c9bf0",
    "orange": "#f58b3c",
    "green": "#4fd8a6",
    "pink": "#ea8cc6",
    "gold": "#efe07a",
    "sky": "#a5e3fa",
    "wine": "#cf4a66",
}


def css_variables(colours: dict[str, str]) -> str:
    """Format the colours as CSS declarations."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


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
        loader=jinja2.ChoiceLoader(
            [
                jinja2.FunctionLoader(functools.partial(_read_template, folder))
                for folder in (package, "oneclass.tasks.html")
            ]
        ),
    )
    environment.globals |= {  # pyright: ignore[reportAttributeAccessIssue]  (Jinja takes any values)
        "style": Markup(_read_template("oneclass.tasks.html", "style.css")),
        "light": Markup(css_variables(LIGHT_COLOURS)),
        "dark": Markup(css_variables(DARK_COLOURS)),
        "number": numbers,
    }
    environment.filters["printable"] = escape_controls
    return environment.get_template(name)


def _read_template(package: str, name: str) -> str | None:
    file = files(package).joinpath(name)
    return file.read_text(encoding="utf-8") if file.is_file() else None
