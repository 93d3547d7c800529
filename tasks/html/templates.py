"""Load the page templates, with the globals and filters that all of them use, and draw sparklines."""

import re
from collections.abc import Collection, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby

import jinja2
from markupsafe import Markup

from oneclass.tasks.html import numbers
from oneclass.tasks.terminal import escape_controls

STYLE = files("oneclass.tasks.html").joinpath("style.css").read_text(encoding="utf-8")
_THEMES = re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\)", STYLE)
LIGHT_COLOURS = {name: light for name, light, _ in _THEMES}
DARK_COLOURS = {name: dark for name, _, dark in _THEMES}


def load_template(package: str, name: str) -> jinja2.Template:
    """Load a template of a package such as `oneclass.tasks.report`; it may extend those there or in this package.

    Values are escaped, and an undefined name raises `jinja2.UndefinedError`.
    """
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(one, "") for one in (package, "oneclass.tasks.html")]),
    )
    environment.globals |= {"style": Markup(STYLE), "number": numbers}  # pyright: ignore[reportAttributeAccessIssue]
    environment.filters["printable"] = escape_controls
    return environment.get_template(name)


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
        from_zero: the axis begins at zero, as for counts, and the area below the line is filled.
        marks: positions marked by a vertical line.
    """
    spread = [error or 0.0 for error in errors] or [0.0] * len(values)
    ends = {i: (0.0 if from_zero else v - e, v + e) for i, (v, e) in enumerate(zip(values, spread)) if v is not None}
    if len(ends) < 2:
        return Markup("")
    low, high = min(end for end, _ in ends.values()), max(end for _, end in ends.values())

    def point(index: int, value: float | None) -> str:
        share = ((value or 0.0) - low) / (high - low) if high > low else 0.5
        x = MARGIN + index * (WIDTH - 2 * MARGIN) / (len(values) - 1)
        return f"{x:.1f},{HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN):.1f}"

    def dot(index: int, radius: float) -> str:
        x, y = point(index, values[index]).split(",")
        return f'<circle cx="{x}" cy="{y}" r="{radius}"/>'

    lines = [point(i, 0).split(",")[0] for i in marks]
    parts = [f'<line class="mark" x1="{x}" x2="{x}" y1="0" y2="{HEIGHT:g}"/>' for x in lines]
    for has_value, group in groupby(range(len(values)), ends.__contains__):
        if has_value:
            segment = list(group)
            band = [point(i, ends[i][1]) for i in segment] + [point(i, ends[i][0]) for i in reversed(segment)]
            parts.append(f'<polygon class="band" points="{" ".join(band)}"/>')
            line = " ".join(point(i, values[i]) for i in segment)
            parts.append(f'<polyline points="{line}"/>' if len(segment) > 1 else dot(segment[0], 1.2))
    opening = f'<svg class="spark" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(label)}">'
    return Markup(f"{opening}{''.join(parts)}{dot(max(ends), 3.2)}</svg>")
