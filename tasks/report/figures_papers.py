"""Figures of the papers at the papers' settings, from the refits of `python -m flows.sweep` and the run's models."""

import json
import re
from typing import Any

from oneclass.models.evaluation.metrics import PERCENTILES
from oneclass.tasks.html import numbers
from oneclass.tasks.report import figures_likes, figures_ranks
from oneclass.tasks.report.figures_sweeps import NO_SWEEP
from oneclass.tasks.report.plotting import (
    HUES,
    LIGHT_COLOURS,
    MARKERS,
    Figure,
    Panel,
    add_legend_below,
    limit_ticks,
    model_style,
    new_panel,
    set_log_axis,
)
from oneclass.tasks.report.rows import Row, bin_centres, column_values, group_rows, join_words, weighted_mean

GRAPH, SYMBOLS, ENTRIES = "random_graph", "paired_symbols", "binary_matrix"
RATES = {0.5: "r = 1/2", 1.0: "r = 1"}
SCORES = {"like": "like", "popularity_x_like": "popularity × like"}
STRATEGY_COLOURS = {"uniform": "blue", "balanced": "orange", "biased": "green"}
PAIRED_LINES = {
    (SYMBOLS, "popularity_x_like"): SYMBOLS,
    (GRAPH, "like"): f"{GRAPH}: like",
    (GRAPH, "popularity_x_like"): f"{GRAPH}: popularity × like",
    **{(model, "score"): model for model in ("bpr_uniform", "bpr_popularity", "popularity")},
}
BASELINE_MODELS = ("bpr_uniform", "bpr_popularity", "popularity")
# The columns of `evaluation.ranks_by_degree` by metric.
PERCENTILE_COLUMNS = {name: f"p{percentile:02}" for name, percentile in PERCENTILES.items()}
MINIBATCH_SCORE = re.compile(r"minibatches@(\d+)")
SIDES = ("user", "item")


def draw_paper_figures(refits: list[Row], ranks: list[Row]) -> list[Figure]:
    """Draw the figures of all three papers.

    Args:
        refits: rows of `evaluation.sweeps`.
        ranks: rows of `evaluation.ranks_by_degree`, for the run's own models.
    """
    of_graph = [_unpack_settings(row) for row in refits if row["model"] == GRAPH]
    of_graph = [row for row in of_graph if row.get("r") in RATES and row["score"] in SCORES]
    return [
        draw_ranks_by_degree(of_graph, ranks),
        draw_rank_spread(of_graph),
        draw_paired_ranks(ranks),
        figures_likes.draw_censored_histograms(refits),
        draw_factors([_unpack_settings(row) for row in refits if row["model"] == SYMBOLS]),
        draw_minibatches([_unpack_settings(row) for row in refits if row["model"] == ENTRIES]),
    ]


def _unpack_settings(row: Row) -> Row:
    """Return the row with the settings that its sweep varied as columns."""
    return row | json.loads(row["settings"])


def draw_ranks_by_degree(rows: list[Row], ranks: list[Row]) -> Figure:
    """Draw Figure 6 of Paquet and Koenigstein (2013): its two scores at its two r, against BPR and popularity."""
    means = [row for row in rows if row["metric"] == "mean_rank"]
    own = {f"{SCORES[row['score']]} with {RATES[row['r']]}": row["value"] for row in means if row["side"] is None}
    baselines = {(model, "score"): model for model in BASELINE_MODELS}
    return Figure(
        "paper_ranks",
        "The random-graph paper's Figure 6: its scores at its own settings",
        see=_describe_best(own, own | _mean_ranks(ranks, baselines)) if own else "",
        how="Mean rank of held-out likes by the likes in training of their user (left) and of their item (right); "
        "items without any have no place on the logarithmic axis, and count in the sentence above alone. The "
        "paper ranks by the like probability, alone and times popularity, at two settings of r, which tempers how "
        "popular the negatives are. The baselines are the run's own models of the same names.",
        table="evaluation.sweeps",
        absent=NO_SWEEP,
        panels=[_draw_side(side, means, ranks) for side in SIDES if any(row["side"] == side for row in means)],
    )


def _mean_ranks(ranks: list[Row], names: dict[tuple[str, str], str]) -> dict[str, float]:
    """Return the mean rank over all held-out likes of some of the run's lists.

    Args:
        ranks: rows of `evaluation.ranks_by_degree`.
        names: what each pair of model and score is called.
    """
    by_list = group_rows([row for row in ranks if row["side"] == "user"], "model", "score")
    return {name: weighted_mean(by_list[key], "mean_rank") for key, name in names.items() if key in by_list}


def _describe_best(own: dict[str, float], every: dict[str, float]) -> str:
    """Describe the best of all lines drawn, and where another is better, the best of the paper's own."""
    best, ours = (max(means, key=lambda name: means[name]) for means in (every, own))
    text = f"Over all held-out likes {best} is best, {every[best]:.4f}"
    return f"{text}." if best == ours else f"{text}; of the paper's own scores {ours}, {own[ours]:.4f}."


def _draw_side(side: str, rows: list[Row], ranks: list[Row]) -> Panel:
    panel = new_panel(f"paper_ranks-{side}", f"Mean rank by {side} degree: the paper's scores, BPR and popularity")
    for model in BASELINE_MODELS:
        of_model = [row for row in ranks if row["model"] == model and row["side"] == side and row["degree_high"]]
        if of_model:
            looks: dict[str, Any] = model_style(model).line | {"linewidth": 1.0}
            panel.axes.plot(bin_centres(of_model), column_values(of_model, "mean_rank"), label=model, **looks)
    on_side = [row for row in rows if row["side"] == side and row["degree_high"]]
    for (score, rate), of_line in sorted(group_rows(on_side, "score", "r").items()):
        panel.axes.plot(
            bin_centres(of_line), column_values(of_line, "value"), label=f"{SCORES[score]}, {RATES[rate]}", marker="o",
            color=_score_colour(score), linestyle="-" if rate < 1 else (0, (4, 1.6)),
        )  # fmt: skip
    figures_ranks.set_rank_axes(panel, on_side, side)
    panel.axes.set(title=f"by {side}")
    add_legend_below(panel)
    return panel


def draw_paired_ranks(ranks: list[Row]) -> Figure:
    """Draw Figure 2 of the paired-symbols paper: its model, the random graph, BPR and popularity by user degree.

    Args:
        ranks: rows of `evaluation.ranks_by_degree`, for the run's own models.
    """
    by_list = group_rows([row for row in ranks if row["side"] == "user" and row["degree_high"]], "model", "score")
    lines = {name: by_list[key] for key, name in PAIRED_LINES.items() if key in by_list}
    means = _mean_ranks(ranks, PAIRED_LINES)
    own = {SYMBOLS: means[SYMBOLS]} if SYMBOLS in lines else {}
    return Figure(
        "paper_paired_ranks",
        "The paired-symbols paper's Figure 2: its model beside the random graph and BPR",
        see=_describe_best(own, means) if own else "",
        how="Mean rank of held-out likes by the likes in training of their user. paired_symbols ranks by its eq. 11, "
        "like times popularity; the random graph by like, alone and times popularity. All are the run's own models, "
        "at the run's settings.",
        table="evaluation.ranks_by_degree",
        absent="It needs paired_symbols and leave_one_out: name them with --models and --protocols.",
        panels=[_draw_paired_lines(lines)] if own else [],
    )


def _draw_paired_lines(lines: dict[str, list[Row]]) -> Panel:
    panel = new_panel(
        "paper_paired_ranks-user", "Mean rank by user degree: paired symbols, random graph, BPR", height=3.3
    )
    for name, of_line in lines.items():
        model = name.partition(":")[0]
        looks = model_style(model).line
        if name.endswith("× like"):
            looks |= {"linestyle": (0, (4, 1.6))}
        panel.axes.plot(bin_centres(of_line), column_values(of_line, "mean_rank"), label=name, **looks)
    figures_ranks.set_rank_axes(panel, [row for of_line in lines.values() for row in of_line], "user")
    add_legend_below(panel)
    return panel


def draw_rank_spread(rows: list[Row]) -> Figure:
    """Draw Figure 7 of Paquet and Koenigstein (2013): percentiles of the ranks at r = 1/2."""
    chosen = group_rows(
        sorted((row for row in rows if row["r"] == 0.5 and row["side"] and row["degree_high"]), key=_sort_key),
        "side",
        "score",
    )
    bins = {key: _pivot_bins(of_list) for key, of_list in chosen.items()}
    phrases = [
        f"{SCORES[score]} {weighted_mean(of_list, 'p50'):.3f} against {weighted_mean(of_list, 'mean_rank'):.3f}"
        for (side, score), of_list in bins.items()
        if side == "user"
    ]
    return Figure(
        "paper_spread",
        "The random-graph paper's Figure 7: the spread of these ranks at r = 1/2",
        see=f"The median against the mean: {join_words(phrases)}." if phrases else "",
        how="The solid line is the median, the dashed one the mean; half of all held-out likes lie in the dark band, "
        "nine of ten in the light one.",
        table="evaluation.sweeps",
        absent=NO_SWEEP,
        panels=[_draw_spread(side, score, of_list) for (side, score), of_list in bins.items()],
        size="small",
    )


def _sort_key(row: Row) -> tuple[bool, str, int]:
    return row["side"] != "user", row["score"], row["degree_low"]


def _pivot_bins(rows: list[Row]) -> list[Row]:
    """Return one row per bin with a column per metric, and the number of its held-out likes as `edges`."""
    bins = []
    for of_bin in group_rows(rows, "degree_low").values():
        values = {PERCENTILE_COLUMNS.get(row["metric"], row["metric"]): row["value"] for row in of_bin}
        bounds = {name: of_bin[0][name] for name in ("degree_low", "degree_high")}
        bins.append(bounds | values | {"edges": of_bin[0]["users"]})
    return bins


def _draw_spread(side: str, score: str, rows: list[Row]) -> Panel:
    name, title = f"paper_spread-{side}-{score}", f"{SCORES[score]}: percentiles of the rank by {side} degree"
    return figures_ranks.draw_percentile_bands(
        name, title, f"{SCORES[score]}, by {side}", side, _score_colour(score), rows
    )


def _score_colour(score: str) -> str:
    return LIGHT_COLOURS["blue" if score == "like" else "green"]


def draw_factors(rows: list[Row]) -> Figure:
    """Draw Section 5 of the paired-symbols paper: the mean rank as K grows from 20 to 50."""
    chosen = sorted(
        (row for row in rows if "factors" in row and row["metric"] == "mean_rank" and row["side"] is None),
        key=lambda row: (row["score"], row["factors"]),
    )
    by_score = group_rows(chosen, "score")
    moves = {score: of_score[-1]["value"] - of_score[0]["value"] for score, of_score in by_score.items()}
    phrases = [f"{score} {numbers.format_fixed(move, 4, signed=True)}" for score, move in moves.items()]
    ends = [of_score[i]["factors"] for of_score in list(by_score.values())[:1] for i in (0, -1)]
    return Figure(
        "sweep_factors",
        "How many factors paired_symbols should have",
        see=f"From K = {ends[0]} to {ends[1]}, the mean rank moves: {join_words(phrases)}." if ends else "",
        how="A dot is a fit with K factors; upwards the mean rank of held-out likes with two standard errors, which "
        "are of the same users, so that differences are surer than they look.",
        table="evaluation.sweeps",
        absent=NO_SWEEP,
        panels=[_draw_factor_curves(by_score)] if by_score else [],
    )


def _draw_factor_curves(by_score: dict[str, list[Row]]) -> Panel:
    panel = new_panel("sweep_factors-mean_rank", "Mean rank of each score for each number of factors", left=0.66)
    for number, (score, of_score) in enumerate(by_score.items()):
        errors = [2 * (row["standard_error"] or 0.0) for row in of_score]
        panel.axes.errorbar(column_values(of_score, "factors"), column_values(of_score, "value"), errors, label=score,
                            color=LIGHT_COLOURS[HUES[number]], marker=MARKERS[number], elinewidth=0.8)  # fmt: skip
    panel.axes.set(xlabel="factors, K", ylabel="mean rank")
    limit_ticks(panel.axes, "x")
    limit_ticks(panel.axes, "y")
    add_legend_below(panel)
    return panel


def draw_minibatches(rows: list[Row]) -> Figure:
    """Draw boxes 9 and 10 of the binary-matrix poster: how entries are drawn, and how many at a time."""
    sizes = [row | {"pass": int(match[1])} for row in rows if (match := MINIBATCH_SCORE.fullmatch(row["metric"]))]
    by_strategy = group_rows(
        sorted((row for row in sizes if "sampling" in row), key=lambda row: row["pass"]), "sampling"
    )
    ranks = [row for row in rows if row["metric"] == "mean_rank" and row["side"] is None]
    held = sorted((row for row in ranks if "most_batch" in row), key=lambda row: row["most_batch"])
    drawn_by = [row for row in ranks if "sampling" in row]
    phrases = [f"{row['sampling']} {row['value']:.4f}" for row in sorted(drawn_by, key=lambda row: -row["value"])]
    panels = [_draw_minibatch_sizes(by_strategy)] if by_strategy else []
    panels += [_draw_fixed_sizes(held, drawn_by)] if held else []
    return Figure(
        "sweep_minibatch",
        "How binary_matrix should draw entries, and how many at a time",
        see=f"Mean rank by how entries are drawn: {join_words(phrases)}." if phrases else "",
        how="Left, the number of entries in a minibatch, which each fit chooses by its ratio of noise to signal, after "
        "each pass. Right, the mean rank of held-out likes with that number held at a value, the lines at the heights "
        "of the fits on the left.",
        table="evaluation.sweeps",
        absent=NO_SWEEP,
        panels=panels,
    )


def _draw_minibatch_sizes(by_strategy: dict[str, list[Row]]) -> Panel:
    panel = new_panel(
        "sweep_minibatch-size", "Entries in a minibatch after each pass, for each way to draw them", left=0.66
    )
    for strategy, strategy_rows in by_strategy.items():
        colour = LIGHT_COLOURS[STRATEGY_COLOURS[strategy]]
        panel.axes.plot(
            column_values(strategy_rows, "pass"), column_values(strategy_rows, "value"), color=colour, label=strategy
        )
    values = [row["value"] for strategy_rows in by_strategy.values() for row in strategy_rows]
    set_log_axis(panel.axes, "y", min(values), max(max(values), 2 * min(values)))
    panel.axes.set(xlabel="pass", ylabel="entries in a minibatch")
    limit_ticks(panel.axes, "x")
    add_legend_below(panel, columns=3)
    return panel


def _draw_fixed_sizes(held: list[Row], drawn_by: list[Row]) -> Panel:
    panel = new_panel("sweep_minibatch-rank", "Mean rank for minibatches held at a size", left=0.66)
    errors = [2 * (row["standard_error"] or 0.0) for row in held]
    panel.axes.errorbar(
        column_values(held, "most_batch"),
        column_values(held, "value"),
        errors,
        color=LIGHT_COLOURS["ink"],
        marker="o",
        elinewidth=0.8,
        label="held at a size",
    )
    for row in drawn_by:
        panel.axes.axhline(
            row["value"],
            color=LIGHT_COLOURS[STRATEGY_COLOURS[row["sampling"]]],
            linewidth=1.1,
            linestyle=(0, (4, 2)),
            label=f"{row['sampling']}, chosen by noise",
        )
    sizes = column_values(held, "most_batch")
    set_log_axis(panel.axes, "x", sizes.min(), max(sizes.max(), 2 * sizes.min()))
    panel.axes.set(xlabel="entries in a minibatch", ylabel="mean rank")
    limit_ticks(panel.axes, "y")
    add_legend_below(panel)
    return panel
