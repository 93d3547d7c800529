"""Show an explanation: as text for a terminal, or as a page that opens offline, beside the report."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from oneclass.tasks.errors import OneclassError
from oneclass.tasks.explain.explanation import Explanation, PublishedList
from oneclass.tasks.html.templates import load_template
from oneclass.tasks.recommend.ranking import LIKE_COLUMNS
from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import escape_controls, format_grid, truncate

MAX_FILE_NAME_LENGTH = 120
MAX_HISTORY_ITEMS = 20  # older ones are in a closed section
TITLE_WIDTH, REASON_WIDTH = 44, 24


def format_explanation(explanation: Explanation) -> str:
    """Format the history, newest first, then the published list."""
    history, titles = explanation.history, explanation.titles
    shown = history[:MAX_HISTORY_ITEMS]
    more = f"\n  and {len(history) - len(shown):,} more" if len(history) > len(shown) else ""
    likes = [
        [
            liked["item_id"],
            _format_title(liked["item_id"], titles),
            f"{liked['first_at']:%Y-%m-%d}" if liked["first_at"] else "",
            f"{liked['users']:,}",
        ]
        for liked in shown
    ]
    head = (
        f"User {escape_controls(explanation.user_id)} of {explanation.dataset} likes {len(history):,} items, the "
        "newest first:"
    )
    parts = [f"{head}\n\n{format_grid([['item', 'title', 'since', 'liked by'], *likes])}{more}"]
    parts += map(escape_controls, explanation.rank_explanations)
    if explanation.published:
        parts.append(_format_list(explanation.published, titles))
    return "\n\n".join(parts)


def _format_list(published: PublishedList, titles: Mapping[str, str]) -> str:
    with_like = any(item["like_mean"] is not None for item in published.items)
    with_reasons = any(item["because"] for item in published.items)
    names = ["", "item", "title", "score", *["like"] * with_like, "liked by", *["because of"] * with_reasons]
    rows = [names]
    for rank, item in enumerate(published.items, 1):
        like = [" ± ".join(f"{item[name]:.3f}" for name in LIKE_COLUMNS if item[name] is not None)] * with_like
        because = (f"{_format_title(of, titles, REASON_WIDTH) or of} {value:+.3f}" for of, value in item["because"])
        reasons = ["; ".join(because)] if with_reasons else []
        mark = f" {item['mark']}" if item["mark"] else " +" if item["seen"] else ""
        cells = [f"{rank}{mark}", item["item_id"], _format_title(item["item_id"], titles), f"{item['score']:.4g}"]
        rows.append([*cells, *like, f"{item['users']:,}", *reasons])
    note = "\n  + seen: the user likes it already" if any(item["seen"] for item in published.items) else ""
    return f"Published: {published.model}, by {published.score}\n\n{format_grid(rows)}{note}"


def _format_title(item_id: str, titles: Mapping[str, str], width: int = TITLE_WIDTH) -> str:
    return truncate(titles.get(item_id, ""), width)


def write_user_page(home: Home, explanation: Explanation) -> Path:
    """Write `<home>/<dataset>/report/users/<user>.html` and return its path.

    Raises:
        OneclassError: the file cannot be written.
    """
    page = home.report / "users" / f"{user_file_name(explanation.user_id)}.html"
    text = load_template("oneclass.tasks.explain", "page.html").render(
        explanation=explanation, titles=explanation.titles, shown=MAX_HISTORY_ITEMS
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
