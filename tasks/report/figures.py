"""The figures of the page: ranks by degree, calibration of `like`, and the degrees with their laws."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from oneclass.models.degrees.distributions import Distribution, support
from oneclass.tasks.html.numbers import format_significant
from oneclass.tasks.recommend.like_calibration import LIKE_MEANING, LIKE_SD_MEANING
from oneclass.tasks.report.plotting import (
    FAINT,
    LIGHT_COLOURS,
    REFERENCE,
    Panel,
    add_legend_below,
    line_style,
    new_panel,
    plot_style,
    render_svg,
    set_log_axis,
)
from oneclass.tasks.report.tables import FigureRows, Row, format_value, group_rows, join_words

BASELINE = "popularity"
MAX_HIGHLIGHTED = 4
ZERO_POSITION = 0.5  # of vertices without likes, for which a logarithmic axis has no place
SIDES = ("user", "item")
REFERENCES = {
    "considered": "considered pairs are held-out likes, and held-out items that the log says were considered and not "
    "liked; popularity here is the share of an item's considerers who liked it",
    "sampled_negatives": "sampled negatives, the papers' substitute, count held-out likes against as many negatives "
    "drawn as the model draws its own: all that real data allow, for what was considered and disliked is never seen",
}
FAMILIES = {
    "power_law": "power law",
    "power_law_cutoff": "power law with cut-off",
    "log_normal": "log-normal",
    "exponential": "exponential",
}
POINTS_PER_LINE = 120
MIN_EXPECTED = 0.7  # vertices; the lower end of the axis


@dataclass(frozen=True)
class Figure:
    """A figure of the page.

    Attributes:
        name: its anchor in the page, and the prefix of its panels' names.
        see: the finding, from the data; empty where the drawing says it.
        how: how to read it: axes, lines, colours.
        table: its warehouse table.
    """

    name: str
    heading: str
    see: str
    how: str
    table: str
    panels: Sequence[Panel]

    @property
    def drawings(self) -> list[Markup]:
        """The panels as `<svg>` elements."""
        with plot_style():
            return [render_svg(panel) for panel in self.panels]


def draw_figures(rows: FigureRows) -> list[Figure]:
    """Draw the figures that have rows."""
    with plot_style():
        figures = [
            draw_ranks(rows.ranks, rows.scores),
            draw_calibration(rows.calibration, rows.lacking),
            draw_degrees(rows.degrees, rows.laws),
        ]
    return [figure for figure in figures if figure.panels]


def column_values(rows: list[Row], name: str) -> np.ndarray:
    """Return a column as float64; NULL is NaN."""
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)


def bin_centres(rows: list[Row]) -> np.ndarray:
    """Return the positions of degree bins on a logarithmic axis; a bin with degree zero begins at `ZERO_POSITION`."""
    low, high = column_values(rows, "degree_low"), column_values(rows, "degree_high")
    return np.sqrt(np.maximum(low, ZERO_POSITION) * np.maximum(high, ZERO_POSITION))


def draw_ranks(rows: list[Row], scores: dict[str, str]) -> Figure:
    """Draw Figure 6 of Paquet and Koenigstein (2014): mean rank by degree, each model by its best score."""
    by_side = group_rows([row for row in rows if scores.get(row["model"]) == row["score"]], "side")
    return Figure(
        "ranks_by_degree",
        "For whom each model ranks well",
        see="",
        how="The mean rank is the share of the other items that the held-out one beats: 1 is the head of the list, "
        "0.5 is guessing. Held-out likes are grouped by the likes in training of their user (left) and of their item "
        "(right), in bins that double in width, of which the outermost may hold few; each model by its best score. "
        f"Beyond the {MAX_HIGHLIGHTED} best, models are thin grey lines; popularity is dotted.",
        table="evaluation.ranks_by_degree",
        panels=[_draw_ranks_of_side(side, by_side[side], scores) for side in SIDES if side in by_side],
    )


def _draw_ranks_of_side(side: str, rows: list[Row], scores: dict[str, str]) -> Panel:
    panel = new_panel(f"ranks_by_degree-{side}", f"Mean rank of every model by {side} degree", height=3.3)
    by_model = group_rows(rows, "model")
    best = [model for model in scores if model != BASELINE][:MAX_HIGHLIGHTED]
    for model in reversed([model for model in scores if model in by_model]):
        looks = line_style(best.index(model)) if model in best else REFERENCE if model == BASELINE else FAINT
        label: dict[str, Any] = {"label": model} if looks is not FAINT else {}
        panel.axes.plot(bin_centres(by_model[model]), column_values(by_model[model], "mean_rank"), **looks, **label)
    set_rank_axes(panel, rows, side)
    add_legend_below(panel)
    return panel


def set_rank_axes(panel: Panel, rows: list[Row], side: str) -> None:
    """Label the axes of ranks by degree and set the range of degrees; the bin without likes is labelled 0."""
    degrees = bin_centres(rows)
    zero = ZERO_POSITION if any(row["degree_high"] == 0 for row in rows) else None
    set_log_axis(panel.axes, "x", degrees.min(), max(2.0, degrees.max(), degrees.min() * 2), zero=zero)
    panel.axes.set(xlabel=f"likes of the {side} in training", ylabel="mean rank")
    panel.axes.locator_params("y", nbins=5)


def draw_calibration(rows: list[Row], lacking: list[str]) -> Figure:
    """Draw calibration curves: the like probability against the observed frequency, by reference.

    Args:
        lacking: the columns of likes that the published lists do not have.
    """
    by_model = group_rows(rows, "model")
    seen = [_describe_miscalibration(model, of_model) for model, of_model in by_model.items()]
    if lacking:
        why = "not confirmed by likes of validation users" + ", or no companion" * ("like_mean" in lacking)
        seen.append(f"published rows have no {join_words(lacking)} ({why})")
    told = [REFERENCES[name] for name in group_rows(rows, "reference") if name in REFERENCES]
    return Figure(
        "calibration",
        "Can a like probability be taken at its word?",
        see="; ".join(seen) + ".",
        how="Across, the probability that the model states; upwards, what a reference says of the same pairs, with two "
        f"standard errors; on the dashed diagonal both agree. {'; '.join(told).capitalize()}. The curves are of the "
        f"probability as a model gives it; the published like_mean is the {LIKE_MEANING}. like_sd is "
        f"{LIKE_SD_MEANING}.",
        table="evaluation.calibration",
        panels=[_draw_calibration_curve(model, of_model) for model, of_model in by_model.items()],
    )


def _describe_miscalibration(model: str, rows: list[Row]) -> str:
    off = [
        f"{calibration_distance(of_reference):.3f} off the {reference.replace('_', ' ')}"
        for reference, of_reference in group_rows(rows, "reference").items()
    ]
    return f"{model} is on average {join_words(off)}"


def calibration_distance(rows: list[Row]) -> float:
    """Return the mean absolute difference between the model's probability and the reference's, over pairs."""
    off = sum(row["pairs"] * abs(row["mean_like"] - row["observed"]) for row in rows)
    return off / sum(row["pairs"] for row in rows)


def _draw_calibration_curve(model: str, rows: list[Row]) -> Panel:
    panel = new_panel(f"calibration-{model}", f"{model}: like probability against each reference")
    panel.axes.plot([0, 1], [0, 1], linestyle=(0, (4, 3)), **FAINT)
    for number, (reference, judged) in enumerate(group_rows(rows, "reference").items()):
        errors = 2 * np.nan_to_num(column_values(judged, "standard_error"))
        panel.axes.errorbar(
            column_values(judged, "mean_like"), column_values(judged, "observed"), errors, elinewidth=0.9,
            label=reference.replace("_", " "), **line_style(number),
        )  # fmt: skip
    panel.axes.set(
        title=model, xlabel="like probability stated", ylabel="what the reference says", xlim=(0, 1), ylim=(0, 1)
    )
    panel.axes.locator_params(nbins=5)
    add_legend_below(panel)
    return panel


def draw_degrees(rows: list[Row], laws: list[Row]) -> Figure:
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
        panels=[_draw_degrees_of_side(side, by_side[side], laws_of.get(side, [])) for side in SIDES if side in by_side],
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
    held = [FAMILIES[row["family"]] for row in laws if row["p_value"] is not None and row["p_value"] >= 0.05]
    verdict = f"The closest law to the {side}s' degrees is the {FAMILIES[best['family']]} ({_format_bootstrap_p(best)})"
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


def _draw_degrees_of_side(side: str, rows: list[Row], laws: list[Row]) -> Panel:
    panel = new_panel(f"degrees-{side}", f"{side.capitalize()}s by degree, with the fitted laws, on logarithmic axes")
    axes, degree, vertices = panel.axes, column_values(rows, "degree"), column_values(rows, "vertices")
    kept, most = thin_points(degree, vertices), max(2.0, vertices.max())
    label = f"{side}s, {vertices.sum():,.0f}"
    axes.plot(degree[kept], vertices[kept], ".", color=LIGHT_COLOURS["blue"], markersize=5, label=label)
    for row in sorted(laws, key=lambda row: row["aic"]):
        if (fitted := distribution_of_row(row)) is not None:
            x, expected = _expected_counts(fitted, vertices.sum(), degree.max())
            looks: dict[str, Any] = {**line_style(1 + list(FAMILIES).index(row["family"])), "marker": ""}
            axes.plot(x, expected, label=_family_label(row), **looks)
            most = max(most, expected.max(initial=0))
    set_log_axis(axes, "x", max(1, degree.min()), max(2, degree.max()))
    set_log_axis(axes, "y", MIN_EXPECTED, most)
    axes.set(title=f"{side.capitalize()}s", xlabel=f"likes of {'a user' if side == 'user' else 'an item'}",
             ylabel=f"{side}s with that many")  # fmt: skip
    add_legend_below(panel, columns=1)
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
    values = zip(names, (row["exponent"], row["cutoff"]), strict=True)
    parts = [f"{name} {format_significant(value)}" for name, value in values if value is not None]
    p_value = [] if row["p_value"] is None else [_format_bootstrap_p(row)]
    return f"{FAMILIES[row['family']]}: {', '.join(parts + p_value)}"


def _format_bootstrap_p(row: Row) -> str:
    """Format a bootstrap p-value; one at the resolution of the bootstrap is an upper bound."""
    value = format_value(row["p_value"], "bootstrap_p")
    return f"p {value}" if value.startswith("<") else f"p = {value}"
