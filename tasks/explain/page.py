"""An explanation as a page that opens with no network, beside the report."""

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import jinja2

from tasks.errors import OneclassError
from tasks.explain.explanation import Explanation
from tasks.stores.home import Home
from tasks.terminal import printable

LONGEST_NAME = 120


def write(home: Home, explanation: Explanation, titles: Mapping[str, str]) -> Path:
    """Write `<home>/<dataset>/report/users/<user>.html`; the page's path.

    Raises:
        OneclassError: the folder cannot be written to.
    """
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["printable"] = printable
    text = files("tasks.explain").joinpath("page.html").read_text(encoding="utf-8")
    page = home.report / "users" / f"{file_name(explanation.user_id)}.html"
    written = environment.from_string(text).render(found=explanation, titles=titles)
    try:
        with home.writing():
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(written, encoding="utf-8")
    except OSError as error:
        raise OneclassError(f"{page}: cannot be written ({error.strerror}).") from error
    return page


def file_name(user_id: str) -> str:
    """A name that any file system takes: all but letters, digits and `_-~` as percent codes."""
    name = quote(user_id, safe="").replace(".", "%2E")
    return name if len(name) <= LONGEST_NAME else hashlib.sha256(user_id.encode()).hexdigest()
