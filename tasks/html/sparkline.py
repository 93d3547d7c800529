"""A small line for a place within text: its shape, its band of error, its last value; no axes."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from markupsafe import Markup

WIDTH, HEIGHT, MARGIN = 240.0, 48.0, 4.0


def draw_sparkline(
    values: Sequence[float | None], label: str, errors: Sequence[float | None] = (), *, from_zero: bool = False
) -> Markup:
    """The values as an `<svg>`, the first at the left, a gap for each None; nothing for fewer than two.

    Args:
        label: what it shows, for those who do not see it.
        errors: of each value, drawn as a band of one error to each side.
        from_zero: the height begins at zero, as counts do, and not at the smallest value.
    """
    spread = [error or 0.0 for error in errors] or [0.0] * len(values)
    known = [(value, error) for value, error in zip(values, spread, strict=True) if value is not None]
    if len(known) < 2:
        return Markup("")
    low = 0.0 if from_zero else min(value - error for value, error in known)
    high = max(value + error for value, error in known)

    def across(at: int) -> str:
        return f"{MARGIN + at * (WIDTH - 2 * MARGIN) / (len(values) - 1):.1f}"

    def up(value: float) -> str:
        share = (value - low) / (high - low) if high > low else 0.5
        return f"{HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN):.1f}"

    parts, heights = [], {at: value for at, value in enumerate(values) if value is not None}
    for there, run in groupby(range(len(values)), heights.__contains__):
        if there:
            places = list(run)
            line = [f"{across(at)},{up(heights[at])}" for at in places]
            edge = [f"{across(at)},{up(heights[at] + spread[at])}" for at in places] if any(spread) else line
            under = [f"{across(at)},{up(0.0 if from_zero else heights[at] - spread[at])}" for at in places[::-1]]
            if any(spread) or from_zero:
                parts.append(f'<polygon class="band" points="{" ".join(edge + under)}"/>')
            parts.append(f'<polyline points="{" ".join(line)}"/>' if len(places) > 1 else _draw_dot(line[0], 1.2))
    last = max(heights)
    parts.append(_draw_dot(f"{across(last)},{up(heights[last])}", 3.2))
    opening = f'<svg class="spark" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(label)}">'
    return Markup(f"{opening}{''.join(parts)}</svg>")


def _draw_dot(place: str, radius: float) -> str:
    x, y = place.split(",")
    return f'<circle cx="{x}" cy="{y}" r="{radius}"/>'
