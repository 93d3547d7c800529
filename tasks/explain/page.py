"""An explanation as a page that opens with no network, beside the report."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from tasks.errors import OneclassError
from tasks.explain.explanation import Explanation
from tasks.pages.templates import template
from tasks.stores.home import Home

LONGEST_NAME = 120
HISTORY_SHOWN = 20  # likes; older ones are folded away


def write(home: Home, explanation: Explanation, titles: Mapping[str, str]) -> Path:
    """Write `<home>/<dataset>/report/users/<user>.html`; the page's path.

    Raises:
        OneclassError: the folder cannot be written to.
    """
    page = home.report / "users" / f"{file_name(explanation.user_id)}.html"
    text = template("tasks.explain", "page.html").render(found=explanation, titles=titles, shown=HISTORY_SHOWN)
    try:
        with home.writing():
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OneclassError(f"{page}: cannot be written ({error.strerror}).") from error
    return page


def file_name(user_id: str) -> str:
    """A name that any file system takes: all but letters, digits and `_-~` as percent codes."""
    name = quote(user_id, safe="").replace(".", "%2E")
    return name if len(name) <= LONGEST_NAME else hashlib.sha256(user_id.encode()).hexdigest()
