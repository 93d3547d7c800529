"""Write an explanation as a page that opens offline, beside the report."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from oneclass.tasks.errors import OneclassError
from oneclass.tasks.explain.explanation import Explanation
from oneclass.tasks.html.templates import load_template
from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home

MAX_FILE_NAME_LENGTH = 120
MAX_HISTORY_ITEMS = 20  # older ones are in a closed section


def write_user_page(home: Home, explanation: Explanation, titles: Mapping[str, str]) -> Path:
    """Write `<home>/<dataset>/report/users/<user>.html` and return its path.

    Raises:
        OneclassError: the file cannot be written.
    """
    page = home.report / "users" / f"{user_file_name(explanation.user_id)}.html"
    text = load_template("oneclass.tasks.explain", "page.html").render(
        explanation=explanation, titles=titles, shown=MAX_HISTORY_ITEMS
    )
    try:
        with home.writing():
            durable.make_folder(page.parent)
            durable.write_text(page.with_name(f".{page.name}"), page, text)
    except OSError as error:
        raise OneclassError(f"{page}: cannot be written ({error.strerror}).") from error
    return page


def user_file_name(user_id: str) -> str:
    """Return a file name valid on any file system: letters, digits and `_-~`, all other characters as percent codes."""
    name = quote(user_id, safe="").replace(".", "%2E")
    return name if len(name) <= MAX_FILE_NAME_LENGTH else hashlib.sha256(user_id.encode()).hexdigest()
