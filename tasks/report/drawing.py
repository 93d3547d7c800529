"""How every figure looks: colours that follow the page's theme, one mark a model, and SVG that can lie in a page.

Figures are drawn in the colours of `LIGHT`; in the SVG each becomes a CSS variable of the same name, so that a
page, or the style that a file of its own carries, can give it another value in the dark.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape

import matplotlib
import numpy as np

matplotlib.use("svg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tasks.pages.colours import DARK, LIGHT, variables
from tasks.pages.numbers import MINUS

HUES = ("blue", "orange", "green", "pink", "gold", "sky", "wine")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8")
DASHES = ("-", (0, (5, 1.6)), (0, (1.6, 1.2)))
MODELS = (
    "random_graph", "bpr_uniform", "mrf_dense", "paired_symbols", "hpf", "binary_matrix", "bpr_popularity",
    "mrf_sparse", "wmf", "slim", "mult_vae", "cdae", "mult_dae",
    "graph_filter",
)  # fmt: skip
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": LIGHT["ink"],
    "axes.edgecolor": LIGHT["faint"],
    "axes.facecolor": "none",
    "axes.labelcolor": LIGHT["ink"],
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlepad": 6,
    "figure.facecolor": "none",
    "grid.color": LIGHT["line"],
    "grid.linewidth": 0.7,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 2.3,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "path.simplify": True,
    "xtick.color": LIGHT["faint"],
    "xtick.labelcolor": LIGHT["soft"],
    "ytick.color": LIGHT["faint"],
    "ytick.labelcolor": LIGHT["soft"],
}
SHADES, DARKEST = 10, 0.85
COLOURS = {value: f"var(--{name}, {value})" for name, value in LIGHT.items()}


@dataclass(frozen=True)
class Panel:
    """One drawing of a figure: `figures/<name>.svg`.

    Attributes:
        title: what it shows, for those who do not see it.
    """

    name: str
    title: str
    figure: Figure

    @property
    def axes(self) -> Axes:
        return self.figure.axes[0]


@dataclass(frozen=True)
class Mark:
    """How one model is drawn wherever it appears: a colour, a marker and a dash of its own."""

    colour: str
    marker: str
    dash: str | tuple

    @property
    def line(self) -> dict:
        """Keywords of `Axes.plot`."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.dash}


def mark(model: str) -> Mark:
    """The same from run to run, whichever models a run has. Popularity, the baseline, is drawn in ink."""
    if model == "popularity":
        return Mark(LIGHT["ink"], ".", (0, (1, 1)))
    at = MODELS.index(model) if model in MODELS else len(MODELS) + sum(model.encode()) % len(HUES)
    return Mark(LIGHT[HUES[at % len(HUES)]], MARKERS[at % len(MARKERS)], DASHES[at // len(HUES) % len(DASHES)])


@contextmanager
def style() -> Iterator[None]:
    """The settings that `panel` and everything drawn on it count on."""
    with matplotlib.rc_context(STYLE):
        yield


def panel(name: str, title: str, *, width: float = 4.0, height: float = 3.0, left: float = 0.56) -> Panel:
    """A panel with one pair of axes; sizes and the left margin in inches, at a known place, which spares a layout."""
    figure = Figure(figsize=(width, height))
    figure.add_axes((left / width, 0.5 / height, (width - left - 0.12) / width, (height - 0.5 - 0.3) / height))
    return Panel(name, title, figure)


def number(value: float, _position: int | None = None) -> str:
    """A tick's label in few characters: 0.001, 0.9, 20, 1,024, 5k, 2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and value % (size / 10) == 0:
            return f"{value / size:.10g}{letter}"
    return (f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:.10g}").replace("-", MINUS)


def decades(axes: Axes, which: str, low: float, high: float) -> None:
    """A logarithmic axis over low .. high, both above zero, labelled at whole decades, or at 1, 2, 5 where few."""
    getattr(axes, f"set_{which}scale")("log")
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    within = [10.0**power for power in range(first, last + 1) if low * 0.999 <= 10.0**power <= high * 1.001]
    if len(within) < 3:
        every = [step * 10.0**power for power in range(first, last + 1) for step in (1, 2, 5)]
        within = [value for value in every if low * 0.999 <= value <= high * 1.001] or [low, high]
    step = -(-len(within) // 6)
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(FixedLocator(within[::step]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(number))
    room = (high / low) ** 0.03 if high > low else 1.5
    getattr(axes, f"set_{which}lim")(low / room, high * room)


def few_ticks(axes: Axes, which: str, count: int = 5) -> None:
    """At most `count` ticks on a linear axis."""
    getattr(axes, f"{which}axis").get_major_locator().set_params(nbins=count)
    getattr(axes, f"{which}axis").set_major_formatter(FuncFormatter(number))


def cells(axes: Axes, left: np.ndarray, bottom: np.ndarray, size: tuple[float, float], shade: np.ndarray) -> None:
    """Rectangles of one size, the darker the higher their shade in 0 .. 1, in `SHADES` steps.

    Those of a step are one path: a drawing stays small, and is drawn fast, however many there are.
    """
    steps = np.clip(np.ceil(shade * SHADES), 1, SHADES).astype(np.int64)
    corners = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]) * size
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    for step in np.unique(steps):
        starts = np.stack([left, bottom], axis=1)[steps == step]
        path = Path((starts[:, None] + corners).reshape(-1, 2), codes * len(starts))
        axes.add_patch(PathPatch(path, facecolor=LIGHT["blue"], alpha=step / SHADES * DARKEST, linewidth=0))


def svg(drawn: Panel) -> str:
    """The panel as an `<svg>` element: ids of its own, colours as CSS variables, text as text, a title."""
    image = io.StringIO()
    for line in (line for axes in drawn.figure.axes for line in axes.lines):
        line.set_clip_on(False)  # what lies at the frame is drawn whole
    drawn.figure.savefig(image, format="svg", metadata={"Date": None, "Creator": None})
    text = image.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>|<!--.*?-->\s*|\s*<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'\b(?:d|x|y|transform)="[^"]*"', lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), text)
    text = re.sub(r'(?<=<g) id="[^"]*"|\s*transform="rotate\(-0 [^"]*"', "", text)
    text = re.sub(r">\s+<", "><", re.sub(r"\s+", " ", text))  # spaces and names that nobody sees
    text = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{drawn.name}-", text)
    text = re.sub(r"#[0-9a-f]{6}\b", lambda found: COLOURS.get(found[0], found[0]), text)
    text = text.replace("'DejaVu Sans'", "system-ui, sans-serif")
    text = re.sub(r'(<svg [^>]*?) width="[^"]*" height="[^"]*"', r"\1", text, count=1)
    label = f'<title id="{drawn.name}-title">{escape(drawn.title)}</title>'
    opening = text.index(">") + 1
    return f'{text[: opening - 1]} role="img" aria-labelledby="{drawn.name}-title">{label}{text[opening:].strip()}'


def file(element: str) -> str:
    """The text of a file of its own: the element with the colours of the reader's theme."""
    rules = f"svg {{background: {DARK['paper']}; {variables(DARK)}}}"
    rules = f"*{{stroke-linejoin: round}} @media (prefers-color-scheme: dark) {{{rules}}}"
    opening = element.index(">") + 1
    return f'<?xml version="1.0" encoding="utf-8"?>\n{element[:opening]}<style>{rules}</style>{element[opening:]}\n'
