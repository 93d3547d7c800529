"""An explanation as text, for a terminal or a file."""

from collections.abc import Mapping

from oneclass.tasks.explain.explanation import Explanation, ModelRecommendations, RecommendedItem
from oneclass.tasks.terminal import escape_controls, format_grid, truncate

TITLE_WIDTH, REASON_WIDTH, MAX_HISTORY_LINES = 44, 24, 20


def format_explanation(explanation: Explanation, titles: Mapping[str, str]) -> str:
    """The history, newest first, then a table a model.

    Args:
        titles: by item id; an item without a title is shown by its id alone.
    """
    history = explanation.history
    shown = history[:MAX_HISTORY_LINES]
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
    head = f"User {escape_controls(explanation.user_id)} of {explanation.dataset} likes {len(history):,} items, the newest first:"
    parts = [f"{head}\n\n{format_grid([['item', 'title', 'since', 'liked by'], *likes])}{more}"]
    if explanation.asked:
        parts.append(escape_controls(explanation.asked))
    if explanation.published:
        parts.append(_format_model(explanation.published, titles, "Published: "))
    parts += [_format_model(of_model, titles) for of_model in explanation.by_model]
    return "\n\n".join(parts)


def _format_model(found: ModelRecommendations, titles: Mapping[str, str], named: str = "") -> str:
    how = "as a training user" if found.known else "unseen in training, the history folded in"
    head = f"{named}{found.model}, by {found.score}; fitted on {found.protocol}, {how}, told of {found.told:,} likes"
    with_like = any(item.like for item in found.items)
    with_reasons = any(item.because for item in found.items)
    names = ["", "item", "title", "score", *["like"] * with_like, "liked by", *["because of"] * with_reasons]
    rows = [names]
    for rank, item in enumerate(found.items, 1):
        like = [f"{item.like[0]:.3f} ± {item.like[1]:.3f}"] if item.like else []
        reasons = [_format_reasons(item, titles)] if with_reasons else []
        mark = " *" if item.held_out else ""
        place = [f"{rank}{mark}", item.item_id, _format_title(item.item_id, titles), f"{item.score:.4g}"]
        rows.append([*place, *like, f"{item.users:,}", *reasons])
    held_out = any(item.held_out for item in found.items)
    note = "\n  * held out: the user likes it, and the model was not told" if held_out else ""
    return f"{head}\n\n{format_grid(rows)}{note}"


def _format_reasons(item: RecommendedItem, titles: Mapping[str, str]) -> str:
    return "; ".join(f"{_format_title(one, titles, REASON_WIDTH) or one} {added:+.3f}" for one, added in item.because)


def _format_title(item_id: str, titles: Mapping[str, str], width: int = TITLE_WIDTH) -> str:
    return truncate(titles.get(item_id, ""), width)
