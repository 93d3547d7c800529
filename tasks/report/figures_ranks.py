"""Figures of the ranking by the degrees of users and items."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter

from oneclass.tasks.report.plotting import (
    LIGHT_COLOURS,
    Panel,
    add_legend_below,
    draw_cells,
    format_tick,
    limit_ticks,
    model_style,
    new_panel,
    set_log_axis,
)
from oneclass.tasks.report.run_tables import Row, bin_centres, column_values, group_rows, join_words, weighted_mean
from oneclass.tasks.report.tables import Figure

BASELINE = "popularity"
MAX_HIGHLIGHTED, WITH_PERCENTILES, WITH_CELLS = 4, 3, 4
MIN_EDGES = 10
ZERO_POSITION = 0.5  # where `bin_centres` puts vertices without likes, for which a logarithmic axis has no place
FAINT: dict[str, Any] = {"color": LIGHT_COLOURS["faint"], "linewidth": 0.9}
NO_RANKS = "Ranks by degree are those of the protocol leave_one_out, which this run has none of: add it to --protocols."
SIDES = ("user", "item")
MEAN_RANK = (
    "The mean rank is the share of the other items that the held-out one beats: 1 is the head of the list, "
    "0.5 is guessing."
)


def draw_rank_overview(rows: list[Row], scores: dict[str, str]) -> Figure:
    """Draw Figure 6 of Paquet and Koenigstein (2014): mean rank by degree, each model by its best score."""
    chosen = [row for row in rows if scores.get(row["model"]) == row["score"]]
    by_side = group_rows(chosen, "side")
    return Figure(
        "ranks_by_degree",
        "For whom each model ranks well",
        see=" ".join(_describe_extremes(side, by_side[side]) for side in SIDES if by_side.get(side)),
        how=f"{MEAN_RANK} Held-out likes are grouped by the likes in training of their user (left) and of their item "
        "(right), in bins that double in width, of which the outermost may hold few; each model by its best score. "
        f"Beyond the {MAX_HIGHLIGHTED} best, models are thin grey lines; popularity is dotted.",
        table="evaluation.ranks_by_degree",
        absent=NO_RANKS,
        panels=[_draw_overview_side(side, by_side[side], scores) for side in SIDES if by_side.get(side)],
    )


def _describe_extremes(side: str, rows: list[Row]) -> str:
    """Describe the best models for low and for high degrees, split at the median held-out like."""
    by_model = group_rows(rows, "model")
    bins = sorted({(row["degree_low"], row["edges"]) for row in next(iter(by_model.values()))})
    running = np.cumsum([edges for _, edges in bins])
    middle = min(int(np.searchsorted(running, running[-1] / 2)), len(bins) - 1)
    if middle == 0:
        return ""
    split, phrases = bins[middle][0], []
    for few in (True, False):
        means = {
            model: weighted_mean(of_model, "mean_rank", where=lambda row, few=few: (row["degree_low"] < split) == few)
            for model, of_model in by_model.items()
        }
        best = max(means, key=lambda model: means[model])
        phrases.append(f"{best} ({means[best]:.3f})")
    return f"By likes of the {side}: below {split:,} {phrases[0]} ranks best, from there on {phrases[1]}."


def _draw_overview_side(side: str, rows: list[Row], scores: dict[str, str]) -> Panel:
    panel = new_panel(f"ranks_by_degree-{side}", f"Mean rank of every model by {side} degree", height=3.3)
    axes, by_model = panel.axes, group_rows(rows, "model")
    muted = [model for model in scores if model != BASELINE][MAX_HIGHLIGHTED:]
    for model in reversed([model for model in scores if model in by_model]):
        looks: dict[str, Any] = FAINT if model in muted else model_style(model).line | {"label": model}
        axes.plot(bin_centres(by_model[model]), column_values(by_model[model], "mean_rank"), **looks)
    set_rank_axes(panel, rows, side)
    add_legend_below(panel)
    return panel


def set_rank_axes(panel: Panel, rows: list[Row], side: str) -> None:
    """Label the axes and set the range of degrees."""
    axes = panel.axes
    set_degree_axis(axes, rows)
    axes.set(xlabel=f"likes of the {side} in training", ylabel="mean rank")
    limit_ticks(axes, "y")


def set_degree_axis(axes: Axes, rows: list[Row]) -> None:
    """Set a logarithmic axis over the bins of degrees; the bin of vertices without likes is labelled 0."""
    degrees = bin_centres(rows)
    set_log_axis(axes, "x", degrees.min(), max(2.0, degrees.max(), degrees.min() * 2))
    if any(row["degree_high"] == 0 for row in rows):
        ticks = [tick for tick in axes.get_xticks() if tick >= 1]
        axes.xaxis.set_major_locator(FixedLocator([ZERO_POSITION, *ticks]))
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda value, position: format_tick(0 if value == ZERO_POSITION else value, position))
        )


def draw_score_variants(rows: list[Row], scores: dict[str, str]) -> Figure:
    """Draw all scores of the models that separate popularity from preference."""
    several = {
        key: list(of_score.values())
        for key, of_score in (
            (key, group_rows(of_key, "score")) for key, of_key in group_rows(rows, "side", "model").items()
        )
        if len(of_score) > 1
    }
    return Figure(
        "ranks_by_score",
        "What popularity adds, and where",
        see=describe_score_variants(several),
        how="Models that keep how much an item is liked apart from how often it is met rank by like alone, by "
        "popularity x like, the papers' own, or by popularity x odds, which multiplies the odds instead; dotted is "
        "popularity alone. Grouped as above.",
        table="evaluation.ranks_by_degree",
        absent=NO_RANKS if not rows else "No model of this run keeps popularity and preference apart.",
        panels=[_draw_score_variants(side, model, of_scores, rows) for (side, model), of_scores in several.items()],
    )


def describe_score_variants(several: dict[tuple[str, str], list[list[Row]]]) -> str:
    """Describe which score is best for the items with the fewest likes, and which for those with the most."""
    phrases = []
    for (side, model), of_scores in several.items():
        if side == "item":
            best = [max(of_scores, key=lambda of_score: of_score[i]["mean_rank"])[i]["score"] for i in (0, -1)]
            phrases.append(
                f"{model} places the items with the fewest likes best by {best[0]}, those with the most by {best[1]}"
                if best[0] != best[1] else f"{model} places both the rarest and the most liked items best by {best[0]}"
            )  # fmt: skip
    return "; ".join(phrases) + "." if phrases else ""


def _draw_score_variants(side: str, model: str, of_scores: list[list[Row]], rows: list[Row]) -> Panel:
    panel = new_panel(f"ranks_by_score-{side}-{model}", f"{model}: mean rank of each score by {side} degree")
    looks = (("blue", "o", "-"), ("orange", "s", (0, (5, 1.6))), ("green", "^", (0, (1.6, 1.2))), ("pink", "D", "-"))
    for (colour, marker, dash), of_score in zip(looks, of_scores, strict=False):
        panel.axes.plot(
            bin_centres(of_score),
            column_values(of_score, "mean_rank"),
            color=LIGHT_COLOURS[colour],
            marker=marker,
            linestyle=dash,
            label=of_score[0]["score"],
        )
    baseline = [row for row in rows if row["model"] == BASELINE and row["side"] == side]
    if baseline:
        panel.axes.plot(
            bin_centres(baseline), column_values(baseline, "mean_rank"), label=BASELINE, **model_style(BASELINE).line
        )
    set_rank_axes(panel, of_scores[0], side)
    panel.axes.set(title=f"{model}, by {side}")
    add_legend_below(panel)
    return panel


def draw_percentiles(rows: list[Row], scores: dict[str, str]) -> Figure:
    """Draw Figure 7 of Paquet and Koenigstein (2014): percentiles of the ranks of the best models and popularity."""
    models = [model for model in scores if model != BASELINE][:WITH_PERCENTILES] + [m for m in scores if m == BASELINE]
    by_panel = group_rows([row for row in rows if scores.get(row["model"]) == row["score"]], "side", "model")
    chosen = {(side, model): by_panel[side, model] for side in SIDES for model in models if (side, model) in by_panel}
    phrases = []
    for (side, model), of_model in chosen.items():
        if side == "user" and model != BASELINE:
            phrases.append(
                f"{model} {weighted_mean(of_model, 'p50'):.3f} against {weighted_mean(of_model, 'mean_rank'):.3f}"
            )
    return Figure(
        "rank_percentiles",
        "How far ranks are spread",
        see=f"The middle rank against the mean, which bad misses pull down: {join_words(phrases)}." if phrases else "",
        how=f"The solid line is the median, the dashed one the mean; half of all held-out likes lie in the dark band, "
        f"nine of ten in the light one. The {WITH_PERCENTILES} best models and popularity.",
        table="evaluation.ranks_by_degree",
        absent=NO_RANKS,
        panels=[_draw_model_spread(side, model, of_model) for (side, model), of_model in chosen.items()],
        size="small",
    )


def _draw_model_spread(side: str, model: str, rows: list[Row]) -> Panel:
    name, title = f"rank_percentiles-{side}-{model}", f"{model}: percentiles of the rank by {side} degree"
    return draw_percentile_bands(name, title, model, side, model_style(model).colour, rows)


def draw_percentile_bands(name: str, title: str, heading: str, side: str, colour: str, rows: list[Row]) -> Panel:
    """Draw the bands p05 to p95 and p25 to p75 of each bin, the median and the mean."""
    panel = new_panel(name, title, width=3.0, height=2.4)
    axes, degrees = panel.axes, bin_centres(rows)
    for low, high, alpha in (("p05", "p95", 0.16), ("p25", "p75", 0.34)):
        axes.fill_between(
            degrees, column_values(rows, low), column_values(rows, high), color=colour, alpha=alpha, linewidth=0
        )
    axes.plot(degrees, column_values(rows, "p50"), color=colour)
    axes.plot(degrees, column_values(rows, "mean_rank"), color=colour, linestyle=(0, (3, 2)), linewidth=1.1)
    set_rank_axes(panel, rows, side)
    axes.set(title=heading, ylabel="rank", ylim=(0, 1.02))
    return panel


def draw_both_degrees(rows: list[Row], scores: dict[str, str]) -> Figure:
    """Draw the mean rank by user and item degree jointly, for the best models and popularity."""
    models = [model for model in scores if model != BASELINE][:WITH_CELLS] + [m for m in scores if m == BASELINE]
    by_list = group_rows([row for row in rows if scores.get(row["model"]) == row["score"]], "model")
    chosen = {model: by_list[model] for model in models if model in by_list}
    low = min((row["mean_rank"] for of_model in chosen.values() for row in of_model if row["edges"] >= MIN_EDGES),
              default=0.0)  # fmt: skip
    return Figure(
        "ranks_by_both_degrees",
        "Users and items at once",
        see=_describe_rare_items(chosen),
        how="A cell holds the held-out likes of users (across) and items (upwards) with at least that many likes in "
        "training; the number is their mean rank in hundredths, and the stronger the blue, the better. Cells of fewer "
        f"than {MIN_EDGES} likes are pale. The best models, and popularity.",
        table="evaluation.ranks_by_both_degrees",
        absent=NO_RANKS,
        panels=[_draw_degree_cells(model, of_model, low) for model, of_model in chosen.items()],
        size="medium",
    )


def _describe_rare_items(by_model: dict[str, list[Row]]) -> str:
    """Describe which model ranks the rarer half of the items best, by the bins of their likes."""
    lows = sorted({row["item_degree_low"] for rows in by_model.values() for row in rows})
    if len(lows) < 2:
        return ""
    middle = lows[len(lows) // 2]
    means = {model: weighted_mean(rows, "mean_rank", where=lambda row: row["item_degree_low"] < middle)
             for model, rows in by_model.items()}  # fmt: skip
    best = max(means, key=lambda model: means[model])
    return f"Items with fewer than {middle:,} likes are placed best by {best} ({means[best]:.3f})."


def _draw_degree_cells(model: str, rows: list[Row], low: float) -> Panel:
    panel = new_panel(f"ranks_by_both_degrees-{model}", f"{model}: mean rank by user degree and item degree", left=0.62)
    axes = panel.axes
    users, items = (sorted({row[f"{side}_degree_low"] for row in rows}) for side in SIDES)
    across = np.array([users.index(row["user_degree_low"]) for row in rows])
    up = np.array([items.index(row["item_degree_low"]) for row in rows])
    shade = np.clip((column_values(rows, "mean_rank") - low) / max(1e-9, 1 - low), 0, 1) ** 2
    few = column_values(rows, "edges") < MIN_EDGES
    draw_cells(axes, across - 0.47, up - 0.47, (0.94, 0.94), np.where(few, 0.0, 0.75 * shade))
    for x, y, row, pale in zip(across, up, rows, few, strict=True):
        axes.text(x, y, f"{100 * row['mean_rank']:.0f}", ha="center", va="center_baseline", fontsize=8.5,
                  color=LIGHT_COLOURS["soft" if pale else "ink"])  # fmt: skip
    axes.set_xticks(range(len(users)), [format_tick(value) for value in users])
    axes.set_yticks(range(len(items)), [format_tick(value) for value in items])
    axes.set(title=model, xlabel="likes of the user, at least", ylabel="likes of the item, at least",
             xlim=(-0.5, len(users) - 0.5), ylim=(-0.5, len(items) - 0.5))  # fmt: skip
    axes.grid(visible=False)
    return panel
