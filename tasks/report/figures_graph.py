"""Figures of the graph and of `like`: degrees, a hidden graph's ratios; errors, certainty and calibration of `like`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from oneclass.models.degrees.distributions import Distribution, support
from oneclass.tasks.html import numbers
from oneclass.tasks.html.numbers import format_percent
from oneclass.tasks.recommend.like_calibration import LIKE_MEANING
from oneclass.tasks.report.figures_ranks import SIDES, set_degree_axis
from oneclass.tasks.report.plotting import (
    LIGHT_COLOURS,
    Panel,
    add_legend_below,
    draw_cells,
    limit_ticks,
    model_style,
    new_panel,
    set_log_axis,
)
from oneclass.tasks.report.run_tables import Row, bin_centres, column_values, group_rows, join_words, weighted_mean
from oneclass.tasks.report.tables import Figure, format_value

NO_LIKE_PROBABILITY = (
    "No model of this run says how likely a like is; random_graph and paired_symbols do: name them with --models."
)
NUM_SLICES = 40
OF_ALL_ENTRIES = "binary_matrix"  # its `like` is the probability of a one among all entries, not given h = 1
REFERENCES = {
    "coin": "the true coin is the probability that a user who considers the item likes it; only the demo knows it, and "
    "a model that learns from drawn negatives does not tend to it, for some of those would be liked",
    "considered": "considered pairs are held-out likes, and held-out items that the log says were considered and not "
    "liked: a true negative class, by which popularity too, as the share of an item's considerers who liked it, is "
    "judged",
    "density_ratio": "the density ratio is the true rate of likes over that of likes and drawn negatives together, "
    "which is what the models estimate; only the demo knows it",
    "sampled_negatives": "sampled negatives, the papers' substitute, count held-out likes against as many negatives "
    "drawn as the model draws its own: all that real data allow, for what was considered and disliked is never seen",
}

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


@dataclass(frozen=True)
class LikeClass:
    """The words for one of the two classes g = 1 and g = 0: its name, the other's name, and its errors."""

    name: str
    other: str
    wrong: str
    rises: str


LIKE_CLASS = LikeClass("like", "dislike", "below one half", "Every one of them was liked, so mass should move up")
DISLIKE_CLASS = LikeClass("dislike", "like", "one half or more", "None of them was liked, so mass should move down")


def draw_errors(rows: list[Row], of: LikeClass = LIKE_CLASS) -> Figure:
    """Draw Figure 4 of Paquet and Koenigstein (2014): held-out likes with `like` below one half, or dislikes above."""
    by_model, left_out = group_considered(rows)
    return Figure(
        f"{of.name}_errors",
        f"How often a held-out {of.name} is taken for a {of.other}",
        see=f"Taken for {of.other}s: "
        + join_sentences(
            [f"by {model} {format_percent(weighted_mean(of_model, 'error'))}" for model, of_model in by_model.items()]
        ),
        how=f"Across, the likes that a user has in training; upwards, the share of held-out {of.name}s whose like "
        f"probability is {of.wrong}: the pale dots for each number of likes up to 40, the line for bins that double "
        f"in width. Lower is better; guessing would give 0.5.{left_out}",
        table=f"evaluation.{of.name}_by_degree",
        absent=NO_LIKE_PROBABILITY,
        panels=[_draw_error_curves(by_model, of)] if by_model else [],
    )


def group_considered(rows: list[Row]) -> tuple[dict[str, list[Row]], str]:
    """Group rows by models whose `like` is p(g = 1 | h = 1), and say which model is left out because its is not.

    Figures 4 and 5 of the paper are of that probability. One over all entries of the matrix is below one half for
    nearly every held-out like.
    """
    by_model = group_rows(rows, "model")
    if by_model.pop(OF_ALL_ENTRIES, None) is None:
        return by_model, ""
    return by_model, f" {OF_ALL_ENTRIES} is left out: its probability is of a one among all entries, considered or not."


def merge_into_doubling_bins(rows: list[Row]) -> list[Row]:
    """Merge rows into bins that double in width, 0, 1, 2-3, 4-7, ..., with the mean error of their edges."""
    bins: dict[int, list[Row]] = {}
    for row in rows:
        bins.setdefault(int(row["degree_low"]).bit_length(), []).append(row)
    return [
        {"degree_low": of_bin[0]["degree_low"], "degree_high": of_bin[-1]["degree_high"],
         "error": weighted_mean(of_bin, "error")}
        for of_bin in bins.values()
    ]  # fmt: skip


def join_sentences(parts: list[str]) -> str:
    return "; ".join(parts) + "." if parts else ""


def _draw_error_curves(by_model: dict[str, list[Row]], of: LikeClass) -> Panel:
    title = f"Share of held-out {of.name}s with a like probability of {of.wrong}, by user degree"
    panel = new_panel(f"{of.name}_errors", title)
    axes = panel.axes
    for model, rows in by_model.items():
        looks, bins = model_style(model), merge_into_doubling_bins(rows)
        axes.plot(bin_centres(rows), column_values(rows, "error"), ".", color=looks.colour, alpha=0.35, markersize=3)
        axes.plot(bin_centres(bins), column_values(bins, "error"), label=model, **looks.line)
    every = [row for rows in by_model.values() for row in rows]
    set_degree_axis(axes, every)
    axes.set(xlabel="likes of a user in training", ylabel=f"share taken for {of.other}s")
    axes.set_ylim(0, max(0.5, column_values(every, "error").max()) * 1.05)
    limit_ticks(axes, "y")
    add_legend_below(panel)
    return panel


def draw_histograms(rows: list[Row], of: LikeClass = LIKE_CLASS) -> Figure:
    """Draw Figure 5 of Paquet and Koenigstein (2014), Figure 4 of the paired-symbols paper: p(g = 1 | h = 1)."""
    considered, left_out = group_considered(rows)
    by_model = {
        model: [row for row in of_model if 1 <= row["degree_low"] == row["degree_high"] <= NUM_SLICES]
        for model, of_model in considered.items()
    }
    by_model = {model: of_model for model, of_model in by_model.items() if of_model}
    return Figure(
        f"{of.name}_histograms",
        f"How sure the models are of held-out {of.name}s",
        see=f"Held-out {of.name}s given more than 0.75: "
        + join_sentences([_describe_confidence(model, of_model) for model, of_model in by_model.items()]),
        how="A column is all users with that many likes in training, 1 to 40; in it, the shades show how the like "
        f"probabilities p(g = 1 | h = 1) of their held-out {of.name}s are spread: the stronger, the larger the share. "
        f"{of.rises} as more is known of a user.{left_out}",
        table=f"evaluation.{of.name}_by_degree",
        absent=NO_LIKE_PROBABILITY if not considered else "No test user has between 1 and 40 likes in training.",
        panels=[
            draw_histogram(
                f"{of.name}_histograms-{model}",
                f"{model}: spread of like probabilities of {of.name}s, users with 1 to {NUM_SLICES} likes",
                model,
                of_model,
            )
            for model, of_model in by_model.items()
        ],
        size="medium",
    )


def slice_shares(rows: list[Row]) -> np.ndarray:
    """Return (bins, NUM_SLICES), the share of each slice's likes in every bin of probability; NaN for empty slices."""
    shares = np.full((len(rows[0]["histogram"]), NUM_SLICES), np.nan)
    for row in rows:
        if total := sum(row["histogram"]):
            shares[:, row["degree_low"] - 1] = np.array(row["histogram"]) / total
    return shares


def _describe_confidence(model: str, rows: list[Row]) -> str:
    counts = np.sum([row["histogram"] for row in rows], axis=0)
    return f"by {model} {format_percent(counts[len(counts) * 3 // 4 :].sum() / counts.sum())}"


def draw_histogram(name: str, title: str, heading: str, rows: list[Row]) -> Panel:
    panel = new_panel(name, title)
    axes, share = panel.axes, slice_shares(rows)
    height = 1 / len(share)
    tall, wide = np.nonzero(share > 0)
    draw_cells(axes, wide + 0.5, tall * height, (1.0, height), share[tall, wide] / np.nanmax(share))
    axes.axhline(0.5, color=LIGHT_COLOURS["ink"], linestyle=(0, (4, 3)), linewidth=0.8)
    axes.set(title=heading, xlabel="likes of a user in training", ylabel="like probability",
             xlim=(0.5, NUM_SLICES + 0.5), ylim=(0, 1))  # fmt: skip
    axes.grid(visible=False)
    limit_ticks(axes, "y")
    return panel


def draw_calibration(rows: list[Row]) -> Figure:
    """Draw calibration curves: the like probability against the observed frequency, by reference."""
    by_model = group_rows(rows, "model")
    references = list(dict.fromkeys(row["reference"] for row in rows))
    return Figure(
        "calibration",
        "Can a like probability be taken at its word?",
        see=join_sentences([_describe_miscalibration(model, of_model) for model, of_model in by_model.items()]),
        how="Across, the probability that the model states; upwards, what a reference says of the same pairs, with two "
        "standard errors; on the dashed diagonal both agree. "
        + join_sentences([REFERENCES[name] for name in references if name in REFERENCES]).capitalize()
        + f" The curves are of the probability as a model gives it; the published like_mean is the {LIKE_MEANING}.",
        table="evaluation.calibration",
        absent=NO_LIKE_PROBABILITY,
        panels=[_draw_calibration_curve(model, of_model) for model, of_model in by_model.items()],
        size="medium",
    )


def _describe_miscalibration(model: str, rows: list[Row]) -> str:
    off = [
        f"{calibration_distance(reference_rows):.3f} off the {reference.replace('_', ' ')}"
        for reference, reference_rows in group_rows(rows, "reference").items()
    ]
    return f"{model} is on average {join_words(off)}"


def calibration_distance(rows: list[Row]) -> float:
    """Return the mean absolute difference between the model's probability and the reference's, over pairs."""
    off = sum(row["pairs"] * abs(row["mean_like"] - row["observed"]) for row in rows)
    return off / sum(row["pairs"] for row in rows)


def _draw_calibration_curve(model: str, rows: list[Row]) -> Panel:
    panel = new_panel(f"calibration-{model}", f"{model}: like probability against each reference")
    axes = panel.axes
    axes.plot([0, 1], [0, 1], color=LIGHT_COLOURS["faint"], linestyle=(0, (4, 3)), linewidth=1)
    looks = (("blue", "o", "-"), ("orange", "s", (0, (5, 1.6))), ("green", "^", (0, (1.6, 1.2))),
             ("ink", "D", (0, (4, 1, 1, 1))))  # fmt: skip
    by_reference = group_rows(rows, "reference")
    for (colour, marker, dash), (reference, judged) in zip(looks, by_reference.items(), strict=False):
        errors = 2 * np.nan_to_num(column_values(judged, "standard_error"))
        axes.errorbar(
            column_values(judged, "mean_like"), column_values(judged, "observed"), errors, elinewidth=0.9,
            color=LIGHT_COLOURS[colour], marker=marker, linestyle=dash, label=reference.replace("_", " "),
        )  # fmt: skip
    axes.set(title=model, xlabel="like probability stated", ylabel="what the reference says", xlim=(0, 1), ylim=(0, 1))
    limit_ticks(axes, "x")
    limit_ticks(axes, "y")
    add_legend_below(panel, columns=2)
    return panel


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
    looks = {"color": LIGHT_COLOURS["blue"], "markersize": 5, "label": f"{side}s, {vertices.sum():,.0f}"}
    axes.plot(degree[kept], vertices[kept], ".", **looks)
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
