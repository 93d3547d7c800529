"""Figures of `like`: how often it errs, how sure it is, and whether its probabilities come true."""

from dataclasses import dataclass

import numpy as np

from tasks.pages.numbers import percent
from tasks.report.drawing import LIGHT, Panel, cells, decades, few_ticks, mark, panel
from tasks.report.figures import Figure, Row, column, grouped, legend_below, listed, mean_over, middles

ABSENT = "No model of this run says how likely a like is; random_graph and paired_symbols do: name them with --models."
SLICES = 40
REFERENCES = {
    "coin": "the true coin is the probability that a user who considers the item likes it; only the demo knows it, and "
    "a model that learns from drawn negatives does not tend to it, for some of those would be liked",
    "considered": "considered pairs are held-out likes, and held-out items that the log says were considered and not "
    "liked: a true negative class, by which popularity too, as the share of an item's considerers who liked it, is judged",
    "density_ratio": "the density ratio is the true rate of likes over that of likes and drawn negatives together, "
    "which is what the models estimate; only the demo knows it",
    "sampled_negatives": "sampled negatives, the papers' substitute, count held-out likes against as many negatives "
    "drawn as the model draws its own: all that real data allow, for what was considered and disliked is never seen",
}


@dataclass(frozen=True)
class Class:
    """One of the two classes, g = 1 and g = 0, in words: its name, that of the other, and what is an error of it."""

    name: str
    other: str
    wrong: str
    rises: str


LIKES = Class("like", "dislike", "below one half", "Every one of them was liked, so mass should move up")
DISLIKES = Class("dislike", "like", "one half or more", "None of them was liked, so mass should move down")


def errors(rows: list[Row], of: Class = LIKES) -> Figure:
    """Figure 4 of Paquet and Koenigstein (2014): held-out likes that `like` puts below one half, or dislikes above."""
    by_model = grouped(rows, "model")
    return Figure(
        f"{of.name}_errors",
        f"How often a held-out {of.name} is taken for a {of.other}",
        see=f"Taken for {of.other}s: "
        + listed_sentence([_error_sentence(model, of_model) for model, of_model in by_model.items()]),
        how=f"Across, the likes that a user has in training; upwards, the share of held-out {of.name}s whose like "
        f"probability is {of.wrong}: the pale dots for each number of likes up to 40, the line for bins that double "
        "in width. Lower is better; guessing would give 0.5.",
        table=f"evaluation.{of.name}_by_degree",
        absent=ABSENT,
        panels=[_errors(by_model, of)] if rows else [],
    )


def _error_sentence(model: str, rows: list[Row]) -> str:
    few = mean_over(rows, "error", where=lambda row: row["degree_high"] < 5)
    some = mean_over(rows, "error", where=lambda row: row["degree_low"] >= 10 and row["degree_high"] <= 20)
    parts = ((few, "fewer than five likes in training"), (some, "ten to twenty"))
    said = [f"{percent(value)} for users with {when}" for value, when in parts if not np.isnan(value)]
    return f"by {model} {listed(said or [percent(mean_over(rows, 'error'))])}"


def doubled(rows: list[Row]) -> list[Row]:
    """The rows in bins that double in width, 0, 1, 2-3, 4-7, ..., with the error of all their edges."""
    bins: dict[int, list[Row]] = {}
    for row in rows:
        bins.setdefault(int(row["degree_low"]).bit_length(), []).append(row)
    return [
        {
            "degree_low": of_bin[0]["degree_low"],
            "degree_high": of_bin[-1]["degree_high"],
            "edges": sum(row["edges"] for row in of_bin),
            "error": mean_over(of_bin, "error"),
        }
        for of_bin in bins.values()
    ]


def listed_sentence(parts: list[str]) -> str:
    return "; ".join(parts) + "." if parts else ""


def _errors(by_model: dict[str, list[Row]], of: Class) -> Panel:
    title = f"Share of held-out {of.name}s with a like probability of {of.wrong}, by user degree"
    drawn = panel(f"{of.name}_errors", title)
    axes = drawn.axes
    for model, rows in by_model.items():
        looks, bins = mark(model), doubled(rows)
        axes.plot(middles(rows), column(rows, "error"), ".", color=looks.colour, alpha=0.35, markersize=3)
        axes.plot(middles(bins), column(bins, "error"), label=model, **looks.line)
    every = [row for rows in by_model.values() for row in rows]
    decades(axes, "x", middles(every).min(), max(2, middles(every).max()))
    axes.set(xlabel="likes of a user in training", ylabel=f"share taken for {of.other}s")
    axes.set_ylim(0, max(0.5, column(every, "error").max()) * 1.05)
    few_ticks(axes, "y")
    legend_below(drawn)
    return drawn


def histograms(rows: list[Row], of: Class = LIKES) -> Figure:
    """Figure 5 of Paquet and Koenigstein (2014), Figure 4 of the paired-symbols paper: p(g = 1 | h = 1)."""
    by_model = {
        model: [row for row in of_model if 1 <= row["degree_low"] == row["degree_high"] <= SLICES]
        for model, of_model in grouped(rows, "model").items()
    }
    by_model = {model: of_model for model, of_model in by_model.items() if of_model}
    return Figure(
        f"{of.name}_histograms",
        f"How sure the models are of held-out {of.name}s",
        see=f"Held-out {of.name}s given more than 0.75: "
        + listed_sentence([_sure_sentence(model, of_model) for model, of_model in by_model.items()]),
        how="A column is all users with that many likes in training, 1 to 40; in it, the shades show how the like "
        f"probabilities p(g = 1 | h = 1) of their held-out {of.name}s are spread: the stronger, the larger the share. "
        f"{of.rises} as more is known of a user.",
        table=f"evaluation.{of.name}_by_degree",
        absent=ABSENT if not rows else "No test user has between 1 and 40 likes in training.",
        panels=[_histogram(model, of_model, of) for model, of_model in by_model.items()],
        size="medium",
    )


def shares(rows: list[Row]) -> np.ndarray:
    """Share of each slice's likes in every bin of probability, (bins, SLICES); NaN where no user is."""
    found = np.full((len(rows[0]["histogram"]), SLICES), np.nan)
    for row in rows:
        if total := sum(row["histogram"]):
            found[:, row["degree_low"] - 1] = np.array(row["histogram"]) / total
    return found


def _sure_sentence(model: str, rows: list[Row]) -> str:
    said = []
    for low, high, when in ((1, 5, "up to five likes in training"), (21, SLICES, f"21 to {SLICES}")):
        part = [row for row in rows if low <= row["degree_low"] <= high]
        counts = np.sum([row["histogram"] for row in part], axis=0) if part else np.zeros(4)
        if counts.sum():
            said.append(f"{percent(counts[len(counts) * 3 // 4 :].sum() / counts.sum())} for users with {when}")
    return f"by {model} {listed(said)}" if said else f"by {model} too few to say"


def _histogram(model: str, rows: list[Row], of: Class) -> Panel:
    title = f"{model}: spread of like probabilities of {of.name}s, users with 1 to {SLICES} likes"
    drawn = panel(f"{of.name}_histograms-{model}", title)
    axes, share = drawn.axes, shares(rows)
    height = 1 / len(share)
    tall, wide = np.nonzero(share > 0)
    cells(axes, wide + 0.5, tall * height, (1.0, height), share[tall, wide] / np.nanmax(share))
    axes.axhline(0.5, color=LIGHT["ink"], linestyle=(0, (4, 3)), linewidth=0.8)
    axes.set(title=model, xlabel="likes of a user in training", ylabel="like probability",
             xlim=(0.5, SLICES + 0.5), ylim=(0, 1))  # fmt: skip
    axes.grid(visible=False)
    few_ticks(axes, "y")
    return drawn


def calibration(rows: list[Row]) -> Figure:
    """The model's like probability against how often it comes true, by reference."""
    by_model = grouped(rows, "model")
    references = list(dict.fromkeys(row["reference"] for row in rows))
    return Figure(
        "calibration",
        "Can a like probability be taken at its word?",
        see=listed_sentence([_off_sentence(model, of_model) for model, of_model in by_model.items()]),
        how="Across, the probability that the model states; upwards, what a reference says of the same pairs, with two "
        "standard errors; on the dashed diagonal both agree. "
        + listed_sentence([REFERENCES[name] for name in references if name in REFERENCES]).capitalize(),
        table="evaluation.calibration",
        absent=ABSENT,
        panels=[_calibration(model, of_model) for model, of_model in by_model.items()],
        size="medium",
    )


def _off_sentence(model: str, rows: list[Row]) -> str:
    off = [
        f"{distance(of_one):.3f} off the {reference.replace('_', ' ')}"
        for reference, of_one in grouped(rows, "reference").items()
    ]
    return f"{model} is on average {listed(off)}"


def distance(rows: list[Row]) -> float:
    """The mean distance over pairs between the stated probability and the reference's."""
    off = sum(row["pairs"] * abs(row["mean_like"] - row["observed"]) for row in rows)
    return off / sum(row["pairs"] for row in rows)


def _calibration(model: str, rows: list[Row]) -> Panel:
    drawn = panel(f"calibration-{model}", f"{model}: like probability against each reference")
    axes = drawn.axes
    axes.plot([0, 1], [0, 1], color=LIGHT["faint"], linestyle=(0, (4, 3)), linewidth=1)
    looks = (
        ("blue", "o", "-"), ("orange", "s", (0, (5, 1.6))), ("green", "^", (0, (1.6, 1.2))), ("ink", "D", (0, (4, 1, 1, 1))),
    )  # fmt: skip
    for (colour, marker, dash), (reference, of_one) in zip(looks, grouped(rows, "reference").items(), strict=False):
        errors = 2 * np.nan_to_num(column(of_one, "standard_error"))
        axes.errorbar(
            column(of_one, "mean_like"), column(of_one, "observed"), errors,
            color=LIGHT[colour], marker=marker, linestyle=dash, elinewidth=0.9, label=reference.replace("_", " "),
        )  # fmt: skip
    axes.set(title=model, xlabel="like probability stated", ylabel="what the reference says", xlim=(0, 1), ylim=(0, 1))
    few_ticks(axes, "x")
    few_ticks(axes, "y")
    legend_below(drawn, columns=2)
    return drawn
