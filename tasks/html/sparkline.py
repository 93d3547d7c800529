"""Draw sparklines: a series with its error band and its last value, without axes."""

from collections.abc import Collection, Sequence
from html import escape
from itertools import groupby

from markupsafe import Markup

WIDTH, HEIGHT, MARGIN = 240.0, 48.0, 4.0


def draw_sparkline(
    values: Sequence[float | None],
    label: str,
    errors: Sequence[float | None] = (),
    *,
    from_zero: bool = False,
    marks: Collection[int] = (),
) -> Markup:
    """Draw the values as an `<svg>`, the first at the left, with a gap for each None; empty for fewer than two values.

    Args:
        label: description for screen readers.
        errors: standard error of each value, drawn as a band of one error to each side.
        from_zero: the axis begins at zero, as for counts, instead of at the smallest value.
        marks: positions marked by a vertical line.
    """
    spread = [error or 0.0 for error in errors] or [0.0] * len(values)
    known = [(value, error) for value, error in zip(values, spread, strict=True) if value is not None]
    if len(known) < 2:
        return Markup("")
    low = 0.0 if from_zero else min(value - error for value, error in known)
    high = max(value + error for value, error in known)

    def x(index: int) -> str:
        return f"{MARGIN + index * (WIDTH - 2 * MARGIN) / (len(values) - 1):.1f}"

    def y(value: float) -> str:
        share = (value - low) / (high - low) if high > low else 0.5
        return f"{HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN):.1f}"

    parts = [f'<line class="mark" x1="{x(i)}" x2="{x(i)}" y1="0" y2="{HEIGHT:g}"/>' for i in marks]
    heights = {i: value for i, value in enumerate(values) if value is not None}
    for has_value, group in groupby(range(len(values)), heights.__contains__):
        if has_value:
            segment = list(group)
            line = [f"{x(i)},{y(heights[i])}" for i in segment]
            upper = [f"{x(i)},{y(heights[i] + spread[i])}" for i in segment] if any(spread) else line
            lower = [f"{x(i)},{y(0.0 if from_zero else heights[i] - spread[i])}" for i in segment[::-1]]
            if any(spread) or from_zero:
                parts.append(f'<polygon class="band" points="{" ".join(upper + lower)}"/>')
            parts.append(f'<polyline points="{" ".join(line)}"/>' if len(segment) > 1 else _draw_dot(line[0], 1.2))
    last = max(heights)
    parts.append(_draw_dot(f"{x(last)},{y(heights[last])}", 3.2))
    opening = f'<svg class="spark" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(label)}">'
    return Markup(f"{opening}{''.join(parts)}</svg>")


def _draw_dot(point: str, radius: float) -> str:
    x, y = point.split(",")
    return f'<circle cx="{x}" cy="{y}" r="{radius}"/>'
