"""Figures of `like`: its errors, its certainty, and its calibration."""

from dataclasses import dataclass

import numpy as np

from oneclass.tasks.html.numbers import format_percent
from oneclass.tasks.recommend.like_calibration import LIKE_MEANING
from oneclass.tasks.report.figures_ranks import set_degree_axis
from oneclass.tasks.report.plotting import (
    LIGHT_COLOURS,
    Figure,
    Panel,
    add_legend_below,
    draw_cells,
    limit_ticks,
    model_style,
    new_panel,
)
from oneclass.tasks.report.rows import Row, bin_centres, column_values, group_rows, join_words, weighted_mean

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
        + join_sentences([_describe_errors(model, of_model) for model, of_model in by_model.items()]),
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


def _describe_errors(model: str, rows: list[Row]) -> str:
    few = weighted_mean(rows, "error", where=lambda row: row["degree_high"] < 5)
    some = weighted_mean(rows, "error", where=lambda row: row["degree_low"] >= 10 and row["degree_high"] <= 20)
    parts = ((few, "fewer than five likes in training"), (some, "ten to twenty"))
    phrases = [f"{format_percent(value)} for users with {when}" for value, when in parts if not np.isnan(value)]
    return f"by {model} {join_words(phrases or [format_percent(weighted_mean(rows, 'error'))])}"


def merge_into_doubling_bins(rows: list[Row]) -> list[Row]:
    """Merge rows into bins that double in width, 0, 1, 2-3, 4-7, ..., with the mean error of their edges."""
    bins: dict[int, list[Row]] = {}
    for row in rows:
        bins.setdefault(int(row["degree_low"]).bit_length(), []).append(row)
    return [
        {
            "degree_low": of_bin[0]["degree_low"],
            "degree_high": of_bin[-1]["degree_high"],
            "edges": sum(row["edges"] for row in of_bin),
            "error": weighted_mean(of_bin, "error"),
        }
        for of_bin in bins.values()
    ]


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
            _draw_histogram(
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
    phrases = []
    for low, high, when in ((1, 5, "up to five likes in training"), (21, NUM_SLICES, f"21 to {NUM_SLICES}")):
        part = [row for row in rows if low <= row["degree_low"] <= high]
        counts = np.sum([row["histogram"] for row in part], axis=0) if part else np.zeros(4)
        if counts.sum():
            phrases.append(
                f"{format_percent(counts[len(counts) * 3 // 4 :].sum() / counts.sum())} for users with {when}"
            )
    return f"by {model} {join_words(phrases)}" if phrases else f"by {model} too few to say"


def _draw_histogram(name: str, title: str, heading: str, rows: list[Row]) -> Panel:
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
        + f" The curves are of `like` as a model gives it; the published like_mean is the {LIKE_MEANING}.",
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
    looks = (
        ("blue", "o", "-"),
        ("orange", "s", (0, (5, 1.6))),
        ("green", "^", (0, (1.6, 1.2))),
        ("ink", "D", (0, (4, 1, 1, 1))),
    )
    for (colour, marker, dash), (reference, reference_rows) in zip(
        looks, group_rows(rows, "reference").items(), strict=False
    ):
        errors = 2 * np.nan_to_num(column_values(reference_rows, "standard_error"))
        axes.errorbar(
            column_values(reference_rows, "mean_like"),
            column_values(reference_rows, "observed"),
            errors,
            color=LIGHT_COLOURS[colour],
            marker=marker,
            linestyle=dash,
            elinewidth=0.9,
            label=reference.replace("_", " "),
        )
    axes.set(title=model, xlabel="like probability stated", ylabel="what the reference says", xlim=(0, 1), ylim=(0, 1))
    limit_ticks(axes, "x")
    limit_ticks(axes, "y")
    add_legend_below(panel, columns=2)
    return panel
