"""Plot figures in one style: colours that follow the page's theme, a mark per line, and inline SVG.

Figures are drawn in the light theme's colours. In the SVG each becomes a CSS variable of the same name, which the page
sets for both themes.
"""

import io
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup

matplotlib.use("svg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from oneclass.tasks.html.numbers import MINUS
from oneclass.tasks.html.templates import LIGHT_COLOURS

HUES = ("blue", "orange", "green", "pink", "gold", "sky", "wine")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8")
DASHES = ("-", (0, (5, 1.6)), (0, (1.6, 1.2)), (0, (6, 1.6, 1.4, 1.6)))
REFERENCE: dict[str, Any] = {"color": LIGHT_COLOURS["ink"], "linestyle": (0, (1, 1)), "linewidth": 1.4}
FAINT: dict[str, Any] = {"color": LIGHT_COLOURS["faint"], "linewidth": 0.9}
PLOT_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": LIGHT_COLOURS["ink"],
    "axes.edgecolor": LIGHT_COLOURS["faint"],
    "axes.facecolor": "none",
    "axes.labelcolor": LIGHT_COLOURS["ink"],
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "figure.facecolor": "none",
    "grid.color": LIGHT_COLOURS["line"],
    "grid.linewidth": 0.7,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "xtick.color": LIGHT_COLOURS["faint"],
    "xtick.labelcolor": LIGHT_COLOURS["soft"],
    "ytick.color": LIGHT_COLOURS["faint"],
    "ytick.labelcolor": LIGHT_COLOURS["soft"],
}
CSS_COLOURS = {value: f"var(--{name}, {value})" for name, value in LIGHT_COLOURS.items()}


@dataclass(frozen=True)
class Panel:
    """One drawing of a figure; `title` describes it for screen readers."""

    name: str
    title: str
    figure: Canvas

    @property
    def axes(self) -> Axes:
        return self.figure.axes[0]


def line_style(number: int) -> dict[str, Any]:
    """Return the keyword arguments of `Axes.plot` that tell a figure's line apart from the others, by its number."""
    return {
        "color": LIGHT_COLOURS[HUES[number % len(HUES)]],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": DASHES[number % len(DASHES)],
    }


def plot_style() -> AbstractContextManager[None]:
    """Set matplotlib's parameters for new panels and everything drawn on them."""
    return matplotlib.rc_context(PLOT_STYLE)


def new_panel(name: str, title: str, *, width: float = 4.0, height: float = 3.0, left: float = 0.56) -> Panel:
    """Create a panel with one pair of axes at a fixed position; sizes and the left margin in inches."""
    figure = Canvas(figsize=(width, height))
    figure.add_axes((left / width, 0.5 / height, (width - left - 0.12) / width, (height - 0.5 - 0.3) / height))
    return Panel(name, title, figure)


def format_tick(value: float, _position: int | None = None) -> str:
    """Format a tick label in few characters: 0.001, 0.9, 20, 1,024, 5k, 2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and value % (size / 10) == 0:
            return f"{value / size:.10g}{letter}"
    return (f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:.10g}").replace("-", MINUS)


def set_log_axis(axes: Axes, which: str, low: float, high: float, *, zero: float | None = None) -> None:
    """Set a logarithmic axis over low .. high, both above zero, labelled at decades, or at 1, 2, 5 if these are few.

    Args:
        zero: the place that stands for zero, which a logarithmic axis lacks, and is labelled 0.
    """
    getattr(axes, f"set_{which}scale")("log")
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    within = [10.0**power for power in range(first, last + 1) if low * 0.999 <= 10.0**power <= high * 1.001]
    if len(within) < 3:
        every = [step * 10.0**power for power in range(first, last + 1) for step in (1, 2, 5)]
        within = [value for value in every if low * 0.999 <= value <= high * 1.001] or [low, high]
    ticks = within[:: -(-len(within) // 6)]
    if zero is not None:
        ticks = [zero, *(tick for tick in ticks if tick >= 1)]
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_tick(0 if value == zero else value)))
    margin = (high / low) ** 0.03 if high > low else 1.5
    getattr(axes, f"set_{which}lim")(low / margin, high * margin)


def add_legend_below(panel: Panel, columns: int = 2) -> None:
    """Add the legend below the axes, and enlarge the panel by its height."""
    handles, labels = panel.axes.get_legend_handles_labels()
    width, height = panel.figure.get_size_inches()
    legend_height = 0.17 * -(-len(labels) // columns) + 0.06
    left, bottom, wide, high = panel.axes.get_position().bounds
    total = height + legend_height
    panel.figure.set_size_inches(width, total)
    panel.axes.set_position((left, (bottom * height + legend_height) / total, wide, high * (height / total)))
    panel.figure.legend(
        handles, labels, loc="lower left", ncols=columns, bbox_to_anchor=(0.01, 0.0), borderaxespad=0.1,
        columnspacing=1.2, labelspacing=0.25, labelcolor=LIGHT_COLOURS["ink"],
    )  # fmt: skip


def render_svg(drawn: Panel) -> Markup:
    """Render a panel as an `<svg>` element with unique ids, colours as CSS variables, text as text, and a title."""
    image = io.StringIO()
    for line in drawn.axes.lines:
        line.set_clip_on(False)  # draw marks on the frame completely
    drawn.figure.savefig(image, format="svg", metadata={"Date": None, "Creator": None})
    text = image.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>|<!--.*?-->\s*|\s*<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'\b(?:d|x|y|transform)="[^"]*"', lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), text)
    text = re.sub(r'(?<=<g) id="[^"]*"|\s*transform="rotate\(-0 [^"]*"', "", text)
    text = re.sub(r">\s+<", "><", re.sub(r"\s+", " ", text))
    text = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{drawn.name}-", text)
    text = re.sub(r"#[0-9a-f]{6}\b", lambda found: CSS_COLOURS.get(found[0], found[0]), text)
    text = text.replace("'DejaVu Sans'", "system-ui, sans-serif")
    text = re.sub(r'(<svg [^>]*?) width="[^"]*" height="[^"]*"', r"\1", text, count=1)
    label = f'<title id="{drawn.name}-title">{escape(drawn.title)}</title>'
    opening = text.index(">") + 1
    return Markup(
        f'{text[: opening - 1]} role="img" aria-labelledby="{drawn.name}-title">{label}{text[opening:].strip()}'
    )
