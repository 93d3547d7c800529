"""The pages' templates: every name that any of them takes for granted, and the shell round them."""

from importlib.resources import files

import jinja2
from markupsafe import Markup

from tasks.pages import numbers
from tasks.pages.colours import DARK, LIGHT, variables
from tasks.terminal import printable


def template(room: str, name: str) -> jinja2.Template:
    """The template `name` of a room such as `tasks.report`; what it extends or includes lies there, or here.

    What is put into it is escaped, and a name that nobody gave is an error.
    """
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.ChoiceLoader(
            [jinja2.FunctionLoader(lambda asked, at=at: _text(at, asked)) for at in (room, "tasks.pages")]
        ),
    )
    environment.globals |= {
        "style": Markup(_text("tasks.pages", "style.css")),
        "light": Markup(variables(LIGHT)),
        "dark": Markup(variables(DARK)),
        "number": numbers,
    }
    environment.filters["printable"] = printable
    return environment.get_template(name)


def _text(room: str, name: str) -> str | None:
    found = files(room).joinpath(name)
    return found.read_text(encoding="utf-8") if found.is_file() else None
