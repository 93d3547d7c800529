"""Show an explanation: as text for a terminal, or as a page that opens offline, beside the report."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from oneclass.tasks.errors import OneclassError
from oneclass.tasks.explain.explanation import Explanation, ModelRecommendations, RecommendedItem
from oneclass.tasks.html.templates import load_template
from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import escape_controls, format_grid, truncate

MAX_FILE_NAME_LENGTH = 120
MAX_HISTORY_ITEMS = 20  # older ones are in a closed section
TITLE_WIDTH, REASON_WIDTH = 44, 24


def format_explanation(explanation: Explanation) -> str:
    """Format the history, newest first, then a table per model."""
    history, titles = explanation.history, explanation.titles
    shown = history[:MAX_HISTORY_ITEMS]
    more = f"\n  and {len(history) - len(shown):,} more" if len(history) > len(shown) else ""
    likes = [
        [
            liked.item_id,
            _format_title(liked.item_id, titles),
            f"{liked.first_at:%Y-%m-%d}" if liked.first_at else "",
            f"{liked.users:,}",
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
        parts.append(_format_model(explanation.published, titles, "Published: "))
    parts += [_format_model(recommendations, titles) for recommendations in explanation.by_model]
    return "\n\n".join(parts)


def _format_model(recommendations: ModelRecommendations, titles: Mapping[str, str], prefix: str = "") -> str:
    how = "a training user" if recommendations.in_training else "not a training user, history folded in"
    head = f"{prefix}{recommendations.model}, by {recommendations.score}; fitted on {recommendations.protocol}, {how}"
    head += f", {recommendations.history_size:,} likes used"
    with_like = any(item.like for item in recommendations.items)
    with_reasons = any(item.because for item in recommendations.items)
    names = ["", "item", "title", "score", *["like"] * with_like, "liked by", *["because of"] * with_reasons]
    rows = [names]
    for rank, item in enumerate(recommendations.items, 1):
        like = [f"{item.like[0]:.3f} ± {item.like[1]:.3f}"] if item.like else []
        reasons = [_format_reasons(item, titles)] if with_reasons else []
        mark = f" {item.mark}" if item.mark else " *" if item.held_out else " +" if item.seen else ""
        cells = [f"{rank}{mark}", item.item_id, _format_title(item.item_id, titles), f"{item.score:.4g}"]
        rows.append([*cells, *like, f"{item.users:,}", *reasons])
    held_out = any(item.held_out for item in recommendations.items)
    note = "\n  * held out: the user likes it, but the model was not trained on that like" if held_out else ""
    note += "\n  + seen: the user likes it already" if any(item.seen for item in recommendations.items) else ""
    return f"{head}\n\n{format_grid(rows)}{note}"


def _format_reasons(item: RecommendedItem, titles: Mapping[str, str]) -> str:
    return "; ".join(
        f"{_format_title(name, titles, REASON_WIDTH) or name} {value:+.3f}" for name, value in item.because
    )


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
