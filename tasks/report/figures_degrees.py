"""Figures of the graph: degrees with fitted distributions, and the ratios of a sampled hidden graph."""

from typing import Any

import numpy as np

from oneclass.models.degrees.distributions import Distribution, support
from oneclass.tasks.html import numbers
from oneclass.tasks.report.plotting import LIGHT_COLOURS, Figure, Panel, add_legend_below, new_panel, set_log_axis
from oneclass.tasks.report.rows import Row, column_values, group_rows, join_words
from oneclass.tasks.report.tables import format_value

FAMILY_NAMES = {
    "power_law": "power law",
    "power_law_cutoff": "power law with cut-off",
    "log_normal": "log-normal",
    "exponential": "exponential",
}
FAMILY_LINES: dict[str, dict[str, Any]] = {
    "power_law": {"color": LIGHT_COLOURS["orange"], "linestyle": "-"},
    "power_law_cutoff": {"color": LIGHT_COLOURS["green"], "linestyle": (0, (5, 1.6))},
    "log_normal": {"color": LIGHT_COLOURS["pink"], "linestyle": (0, (6, 1.6, 1.4, 1.6))},
    "exponential": {"color": LIGHT_COLOURS["gold"], "linestyle": (0, (1.6, 1.2))},
}
POINTS_PER_LINE = 120
MIN_EXPECTED = 0.7  # vertices; the lower end of the axis
SIDES = ("user", "item")


def draw_degree_distributions(rows: list[Row], laws: list[Row]) -> Figure:
    """Draw Figure 1 of Paquet and Koenigstein (2014): vertices of each degree, and the four fitted distributions."""
    by_side, laws_of = group_rows(rows, "side"), group_rows(laws, "side")
    return Figure(
        "degrees",
        "How many users and items have each degree",
        see=" ".join(describe_best_fit(side, laws_of[side]) for side in SIDES if laws_of.get(side)),
        how="A degree is the number of likes of a user, or of an item. Both axes are logarithmic; a dot is how many "
        "users (items) have exactly that degree, a line how many the fitted law expects. p is the share of samples "
        "drawn from the law that lie as far from their own fit as the data do: below 0.05 the law is rejected.",
        table="diagnostics.degrees, diagnostics.power_law_fits",
        absent="There are no edges, so there are no degrees to show.",
        panels=[_draw_side(side, by_side[side], laws_of.get(side, [])) for side in SIDES if by_side.get(side)],
    )


def distribution_of_row(row: Row) -> Distribution | None:
    """Build the distribution of a row of `diagnostics.power_law_fits`; None if the fit is a limit of its family."""
    exponent, cutoff = row["exponent"], row["cutoff"]
    if row["family"] == "log_normal":
        if exponent is None or not cutoff:
            return None
        eta = (exponent / cutoff**2, -0.5 / cutoff**2)
    elif row["family"] == "exponential":
        eta = (-1 / cutoff if cutoff else 0.0,)
    elif exponent is None:
        return None
    else:
        eta = (-exponent,) if row["family"] == "power_law" else (-exponent, -1 / cutoff if cutoff else 0.0)
    return Distribution(row["family"], eta, row["d_min"], row["d_max"])


def describe_best_fit(side: str, laws: list[Row]) -> str:
    """Describe which distribution is closest to a side's degrees, and which ones the data reject."""
    best = min(laws, key=lambda row: row["aic"])
    if best["p_value"] is None:
        return f"All {side}s have nearly the same degree; no law is needed."
    held = [FAMILY_NAMES[row["family"]] for row in laws if row["p_value"] is not None and row["p_value"] >= 0.05]
    verdict = (
        f"The closest law to the {side}s' degrees is the {FAMILY_NAMES[best['family']]} ({_format_bootstrap_p(best)})"
    )
    if not held:
        return f"{verdict}, and the data reject all {len(laws)}."
    return f"{verdict}; the data do not reject the {join_words(held)}."


def thin_points(x: np.ndarray, y: np.ndarray, steps: int = 110) -> np.ndarray:
    """Select one point per occupied cell of a logarithmic grid of `steps` by `steps` cells; returns indices."""
    cells = []
    for values in (x, y):
        logs = np.log(values)
        spread = np.ptp(logs)
        cells.append(np.round((logs - logs.min()) / spread * steps) if spread else np.zeros(len(logs)))
    return np.sort(np.unique(np.stack(cells), axis=1, return_index=True)[1])


def _draw_side(side: str, rows: list[Row], laws: list[Row]) -> Panel:
    panel = new_panel(f"degrees-{side}", f"{side.capitalize()}s by degree, with the fitted laws, on logarithmic axes")
    axes, degree, vertices = panel.axes, column_values(rows, "degree"), column_values(rows, "vertices")
    kept, most = thin_points(degree, vertices), max(2.0, vertices.max())
    axes.plot(
        degree[kept],
        vertices[kept],
        ".",
        color=LIGHT_COLOURS["blue"],
        markersize=5,
        label=f"{side}s, {vertices.sum():,.0f}",
    )
    for row in sorted(laws, key=lambda row: row["aic"]):
        if (fitted := distribution_of_row(row)) is not None:
            x, expected = _expected_counts(fitted, vertices.sum(), degree.max())
            axes.plot(x, expected, label=_family_label(row), **FAMILY_LINES[row["family"]])
            most = max(most, expected.max(initial=0))
    set_log_axis(axes, "x", max(1, degree.min()), max(2, degree.max()))
    set_log_axis(axes, "y", MIN_EXPECTED, most)
    axes.set(title=f"{side.capitalize()}s", xlabel=f"likes of {'a user' if side == 'user' else 'an item'}",
             ylabel=f"{side}s with that many")  # fmt: skip
    add_legend_below(panel, columns=1, fontsize=8.5)
    return panel


def _expected_counts(fitted: Distribution, vertices: float, largest: float) -> tuple[np.ndarray, np.ndarray]:
    """Return (degrees, expected vertices) on the line of a fitted distribution."""
    indices = np.round(np.geomspace(1, min(largest, fitted.d_max) - fitted.d_min + 1, POINTS_PER_LINE))
    indices = (np.unique(indices) - 1).astype(np.int64)
    expected = vertices * fitted.mass[indices]
    visible = expected >= MIN_EXPECTED
    return support(fitted.d_min, fitted.d_max)[indices][visible], expected[visible]


def _family_label(row: Row) -> str:
    names = ("μ", "σ") if row["family"] == "log_normal" else ("exponent", "cut-off")
    parts = [
        f"{name} {numbers.format_significant(row[key])}"
        for name, key in zip(names, ("exponent", "cutoff"), strict=True)
        if row[key] is not None
    ]
    p_value = [] if row["p_value"] is None else [_format_bootstrap_p(row)]
    return f"{FAMILY_NAMES[row['family']]}: {', '.join(parts + p_value)}"


def _format_bootstrap_p(row: Row) -> str:
    """Format a bootstrap p-value; one at the resolution of the bootstrap is an upper bound."""
    value = format_value(row["p_value"], "bootstrap_p")
    return f"p {value}" if value.startswith("<") else f"p = {value}"


def draw_hidden_graph_ratios(rows: list[Row]) -> Figure:
    """Draw Figure 3 of Paquet and Koenigstein (2014): positives to negatives of each item, a sample for each r."""
    by_rate = group_rows(rows, "r")
    return Figure(
        "hidden_graph_ratios",
        "What the random-graph model takes for dislikes",
        see=" ".join(describe_ratios(rate, of_rate) for rate, of_rate in by_rate.items()),
        how="The model adds edges without a like, its negatives, around the observed graph; r says how strongly they "
        "follow popularity. A dot is an item, across its likes, upwards likes to added edges; the line is the median "
        "of items of like degree; on the dashed line both are equally many. The head rises because an edge drawn to a "
        "popular item is often a like already.",
        table="diagnostics.hidden_graph_ratios",
        absent="It needs a sampled hidden graph, and so the model random_graph: name it with --models.",
        panels=[_draw_rate(rate, of_rate) for rate, of_rate in by_rate.items()],
    )


def describe_ratios(rate: float, rows: list[Row]) -> str:
    """Compare the median ratios of the most liked tenth of the items and of the others."""
    ordered = sorted(rows, key=lambda row: -row["positives"])
    head = max(1, len(ordered) // 10)
    middle = [np.median([row["positives"] / max(1, row["negatives"]) for row in part])
              for part in (ordered[:head], ordered[head:]) if part]  # fmt: skip
    ratios = [numbers.format_significant(float(value), 2) for value in middle]
    rest = f", among the others {ratios[1]}" if len(ratios) > 1 else ""
    return f"With r = {rate:g}, the middle item of the most liked tenth has {ratios[0]} likes a negative{rest}."


def _draw_rate(rate: float, rows: list[Row]) -> Panel:
    name = f"hidden_graph_ratios-{rate:g}".replace(".", "_")
    panel = new_panel(name, f"Likes to added edges of every item, r = {rate:g}, on logarithmic axes")
    axes, rows = panel.axes, [row for row in rows if row["positives"] > 0 and row["negatives"] > 0]
    axes.set(title=f"r = {rate:g}", xlabel="likes of an item", ylabel="likes a negative")
    if not rows:
        return panel
    positives = column_values(rows, "positives")
    ratio = positives / column_values(rows, "negatives")
    kept = thin_points(positives, ratio, 45)
    axes.plot(positives[kept], ratio[kept], ".", color=LIGHT_COLOURS["sky"], markersize=3, alpha=0.7)
    edges = np.geomspace(1, positives.max() * 1.001, 13)
    which = np.digitize(positives, edges)
    bins = [which == number for number in np.unique(which)]
    axes.plot([np.median(positives[b]) for b in bins], [np.median(ratio[b]) for b in bins], color=LIGHT_COLOURS["blue"])
    axes.axhline(1, color=LIGHT_COLOURS["ink"], linestyle=(0, (4, 3)), linewidth=1)
    set_log_axis(axes, "x", 1, max(2, positives.max()))
    set_log_axis(axes, "y", min(0.5, ratio.min()), max(2, ratio.max()))
    return panel
