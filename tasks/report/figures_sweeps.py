"""Figures of the refits with other settings by `python -m flows.sweep`."""

import json

from oneclass.tasks.report.plotting import (
    HUES,
    LIGHT_COLOURS,
    MARKERS,
    Figure,
    Panel,
    add_legend_below,
    limit_ticks,
    new_panel,
    set_log_axis,
)
from oneclass.tasks.report.rows import Row, bin_centres, column_values, group_rows

NO_SWEEP = (
    "It needs refits with other settings, which a run does not make: python -m flows.sweep does, and the next "
    "report shows them."
)
CENSORED, SPARSE = "paired_symbols", "mrf_sparse"
ACCURACY = ("ndcg@100", "recall@50", "recall@20", "mean_rank")


def draw_ranks_by_rate(rows: list[Row]) -> Figure:
    """Draw Figure 3 of the paired-symbols paper: mean rank by user degree as r in D' = r D varies."""
    chosen = [
        row | {"r": rate}
        for row in rows
        if row["model"] == CENSORED and row["metric"] == "mean_rank" and row["side"] == "user"
        and (rate := json.loads(row["settings"]).get("r")) is not None
    ]  # fmt: skip
    by_score = group_rows(sorted(chosen, key=lambda row: (row["score"], row["r"], row["degree_low"])), "score")
    return Figure(
        "sweep_r",
        "How many censored pairs paired_symbols should assume",
        see=" ".join(_describe_rates(score, of_score) for score, of_score in by_score.items()),
        how="The model assumes r pairs that were not shown for each that was, D' = r D. A line is one r; across, the "
        "likes of a user in training, upwards the mean rank of the held-out like. One panel a score.",
        table="evaluation.sweeps",
        absent=NO_SWEEP,
        panels=[_draw_rates(score, of_score) for score, of_score in by_score.items()],
    )


def _describe_rates(score: str, rows: list[Row]) -> str:
    rates = group_rows(rows, "r")
    means = {rate: sum(r["value"] * r["users"] for r in of_rate) / sum(r["users"] for r in of_rate)
             for rate, of_rate in rates.items()}  # fmt: skip
    best, worst = (choose(means, key=lambda rate: means[rate]) for choose in (max, min))
    return (
        f"By {score}, r = {best:g} ranks best over all users ({means[best]:.4f}), r = {worst:g} worst "
        f"({means[worst]:.4f})."
    )


def _draw_rates(score: str, rows: list[Row]) -> Panel:
    panel = new_panel(f"sweep_r-{score}", f"Mean rank by user degree for each r, score {score}")
    for number, (rate, of_rate) in enumerate(group_rows(rows, "r").items()):
        panel.axes.plot(
            bin_centres(of_rate),
            column_values(of_rate, "value"),
            label=f"r = {rate:g}",
            color=LIGHT_COLOURS[HUES[number % len(HUES)]],
            marker=MARKERS[number % len(MARKERS)],
        )
    degrees = bin_centres(rows)
    set_log_axis(panel.axes, "x", degrees.min(), max(degrees.max(), degrees.min() * 2))
    panel.axes.set(title=score, xlabel="likes of a user in training", ylabel="mean rank")
    limit_ticks(panel.axes, "y")
    add_legend_below(panel, columns=3)
    return panel


def draw_trade_off(rows: list[Row]) -> Figure:
    """Draw Table 2 of the Markov-random-field paper: accuracy against training time as sparsity and r vary."""
    whole = [row | {"r": json.loads(row["settings"]).get("r", 0.0), "sparsity": _sparsity_label(row["settings"])}
             for row in rows if row["model"] == SPARSE and row["degree_low"] is None]  # fmt: skip
    metric = next((name for name in ACCURACY if any(row["metric"] == name for row in whole)), None)
    chosen = sorted((row for row in whole if row["metric"] == metric), key=lambda row: (row["sparsity"], row["r"]))
    by_protocol = group_rows(chosen, "protocol")
    return Figure(
        "sweep_sparsity",
        "What accuracy costs mrf_sparse in training time",
        see=" ".join(_describe_costs(protocol, line_rows) for protocol, line_rows in by_protocol.items()),
        how="A dot is a fit: across, the seconds that it took, on a logarithmic axis; upwards its accuracy with two "
        "standard errors. Lines join fits of one sparsity; the number at a dot is r, which sets how large the blocks "
        "of items are that are solved together.",
        table="evaluation.sweeps",
        absent=NO_SWEEP,
        panels=[_draw_costs(protocol, line_rows) for protocol, line_rows in by_protocol.items()],
    )


def _sparsity_label(settings: str) -> str:
    """Format the settings except r, which the fits of one line share."""
    others = {name: value for name, value in sorted(json.loads(settings).items()) if name != "r"}
    return ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                     for name, value in others.items())  # fmt: skip


def _describe_costs(protocol: str, rows: list[Row]) -> str:
    best, quick = max(rows, key=lambda row: row["value"]), min(rows, key=lambda row: row["seconds"])
    ends = [f"{row['value']:.4f} after {row['seconds']:.3g} s" for row in (best, quick)]
    return f"On {protocol}, the most accurate fit has {best['metric']} {ends[0]}, the quickest {ends[1]}."


def _draw_costs(protocol: str, rows: list[Row]) -> Panel:
    panel = new_panel(f"sweep_sparsity-{protocol}", f"Accuracy against training seconds on {protocol}")
    for number, (sparsity, line_rows) in enumerate(group_rows(rows, "sparsity").items()):
        colour = LIGHT_COLOURS[HUES[number % len(HUES)]]
        errors = [2 * (row["standard_error"] or 0.0) for row in line_rows]
        panel.axes.errorbar(
            column_values(line_rows, "seconds"),
            column_values(line_rows, "value"),
            errors,
            label=sparsity or SPARSE,
            color=colour,
            marker=MARKERS[number % len(MARKERS)],
            elinewidth=0.8,
        )
        for row in line_rows:
            panel.axes.annotate(f"{row['r']:g}", (row["seconds"], row["value"]), (4, 4), textcoords="offset points",
                                fontsize=7.5, color=LIGHT_COLOURS["soft"])  # fmt: skip
    seconds = column_values(rows, "seconds")
    set_log_axis(panel.axes, "x", max(1e-3, seconds.min()), max(seconds.max(), seconds.min() * 2, 2e-3))
    panel.axes.set(title=protocol, xlabel="training, seconds", ylabel=rows[0]["metric"])
    limit_ticks(panel.axes, "y")
    add_legend_below(panel, columns=1 if max(map(len, group_rows(rows, "sparsity"))) > 24 else 2)
    return panel
