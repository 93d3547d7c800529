"""A small line for a place within text: its shape, its band of error, its last value; no axes."""

from collections.abc import Sequence
from html import escape

from markupsafe import Markup

WIDTH, HEIGHT, MARGIN = 240.0, 48.0, 4.0


def sparkline(
    values: Sequence[float], label: str, errors: Sequence[float | None] = (), *, from_zero: bool = False
) -> Markup:
    """The values as an `<svg>`, the first at the left; nothing for fewer than two.

    Args:
        label: what it shows, for those who do not see it.
        errors: of each value, drawn as a band of one error to each side.
        from_zero: the height begins at zero, as counts do, and not at the smallest value.
    """
    if len(values) < 2:
        return Markup("")
    spread = [error or 0.0 for error in errors] or [0.0] * len(values)
    low = 0.0 if from_zero else min(value - error for value, error in zip(values, spread, strict=True))
    high = max(value + error for value, error in zip(values, spread, strict=True))
    across = [MARGIN + at * (WIDTH - 2 * MARGIN) / (len(values) - 1) for at in range(len(values))]

    def up(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)

    line = " ".join(f"{x:.1f},{up(value):.1f}" for x, value in zip(across, values, strict=True))
    parts = []
    if any(spread):
        upper = [f"{x:.1f},{up(v + e):.1f}" for x, v, e in zip(across, values, spread, strict=True)]
        lower = [f"{x:.1f},{up(v - e):.1f}" for x, v, e in zip(across, values, spread, strict=True)]
        parts.append(f'<polygon class="band" points="{" ".join(upper + lower[::-1])}"/>')
    elif from_zero:
        base = HEIGHT - MARGIN
        ends = f"{across[-1]:.1f},{base:.1f} {across[0]:.1f},{base:.1f}"
        parts.append(f'<polygon class="band" points="{line} {ends}"/>')
    parts.append(f'<polyline points="{line}"/>')
    parts.append(f'<circle cx="{across[-1]:.1f}" cy="{up(values[-1]):.1f}" r="3.2"/>')
    opening = f'<svg class="spark" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(label)}">'
    return Markup(f"{opening}{''.join(parts)}</svg>")
