"""Draw the figures and print the tables of docs/papers/, from a finished run and refits of its models.

    python -m benchmarks.paper_figures --dataset ml-1m --home var --out figures [--papers mrf] [--threads 2]

The run must have evaluated leave_one_out, for mrf strong_generalization. Refits have the run's settings, or the
defaults for models that it lacks, except what a paper varies. A drawing is a PNG file in `--out`; tables go to stdout.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.common import parse_options
from oneclass.models.base import Model
from oneclass.models.binary_matrix import inference
from oneclass.models.evaluation import metrics
from oneclass.models.evaluation.calibration import HISTOGRAM_BINS, bin_likes_by_degree
from oneclass.models.evaluation.metrics import Mean
from oneclass.models.fit_options import FitOptions, ValidationUsers
from oneclass.models.numerics.validation import count_item_degrees
from oneclass.models.registry import MODELS
from oneclass.tasks.evaluate.calibration import sample_likes
from oneclass.tasks.evaluate.ranking import group_ranks_by_degree, rank_targets_by_score, target_degrees
from oneclass.tasks.report import figures, plotting
from oneclass.tasks.report.tables import Row, group_rows
from oneclass.tasks.stores import fits, matrices, runs, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices

GRAPH, SYMBOLS, ENTRIES, SPARSE = "random_graph", "paired_symbols", "binary_matrix", "mrf_sparse"
BASELINES = ("bpr_uniform", "bpr_popularity", "popularity")
GRAPH_SCORES = {"like": "like", "popularity_x_like": "popularity x like"}
GRAPH_RATES = (0.5, 1.0)
RATES, SPREAD_RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0), (0.5, 1.0, 2.0)
FACTORS = (20, 30, 40, 50)
STRATEGIES, HELD_SIZES = ("uniform", "balanced", "biased"), (1_000, 10_000, 100_000)
DENSITIES, DENSITY_RATES = (0.15, 0.059, 0.029, 0.012), (0.0, 0.1, 0.5)
TABLE_1 = ("mrf_dense", "mult_vae", "mult_dae", "cdae", "slim", "wmf")
TABLE_METRICS = ("ndcg@100", "recall@20", "recall@50")
COMPILE_USERS = 64  # of a first fit, which is discarded, so that no time includes compiling kernels
DOTS_PER_INCH = 150
NUM_SLICES = 40  # likes of a user up to which the spread of `like` is drawn


@dataclass(frozen=True)
class Refit:
    """A fitted model, its split, its metrics by score, and its rows by degree as in `evaluation.ranks_by_degree`."""

    model: Model
    split: SplitMatrices
    means: dict[str, dict[str, Mean]]
    rows: list[Row]
    cpu_seconds: float


class FinishedRun:
    """The latest run of a data set that evaluated anything.

    Attributes:
        ranks: rows of `evaluation.ranks_by_degree`.
    """

    def __init__(self, home: Home, out: Path, threads: int = 1) -> None:
        self.home, self.out, self.threads = home, out, threads
        with warehouse.open_warehouse(home, read_only=True) as connection:
            run_id = runs.find_latest_evaluated(connection)
            if run_id is None:
                sys.exit(f"{home.warehouse}: no run was evaluated; run flows.backfill first.")
            [[text]] = connection.execute("select settings from operations.runs where run_id = ?", [run_id]).fetchall()
            query = """select protocol, min(model), arg_min(digest, model) from operations.model_fits
                where run_id = ? group by protocol"""
            found = connection.execute(query, [run_id]).fetchall()
            query = "from evaluation.ranks_by_degree where run_id = ? order by side desc, model, score, degree_low"
            self.ranks: list[Row] = connection.sql(query, params=[run_id]).pl().to_dicts()
        self.settings: dict[str, Any] = json.loads(text)
        self.splits = {protocol: fit.matrices for protocol, *name in found if (fit := fits.find_fit(home, *name))}

    def load_split(self, protocol: str) -> SplitMatrices:
        """Load the matrices of a protocol."""
        if protocol not in self.splits:
            sys.exit(f"{self.home.warehouse}: its latest run has no {protocol}; add it to --protocols.")
        return matrices.load_split(self.home, self.splits[protocol])

    def refit(self, protocol: str, name: str, **varied: Any) -> Refit:
        """Fit a model at the run's settings, but for some, and rank the test part."""
        split, kind = self.load_split(protocol), MODELS[name]
        own = {k: v for k, v in self.settings["models"].get(name, {}).items() if k in kind.Settings.model_fields}
        settings, part = kind.Settings(**{**own, **varied}), split.parts["test"]
        held = split.parts.get("validation")
        options = FitOptions(validation=ValidationUsers(held.histories, held.targets) if held else None)
        with contextlib.suppress(ValueError):  # of too few users; else kernels are compiled now
            kind(settings, threads=self.threads).fit(split.train[:COMPILE_USERS])
        model, started = kind(settings, seed=self.settings["seed"], threads=self.threads), time.process_time()
        model.fit(split.train, options)
        seconds = time.process_time() - started
        ranks = rank_targets_by_score(model, part, on_progress=False)
        means = {score: metrics.average_over_users(of_score.of_users) for score, of_score in ranks.items()}
        rows = [row for score, of_score in ranks.items() for row in rank_rows(split, score, of_score.edge_ranks)]
        print(f"{name} {varied}: {seconds:.1f} CPU s", file=sys.stderr, flush=True)
        return Refit(model, split, means, [{"model": name, **row} for row in rows], seconds)

    def save(self, panel: plotting.Panel) -> None:
        """Write a drawing as PNG."""
        panel.figure.savefig(self.out / f"{panel.name}.png", dpi=DOTS_PER_INCH, facecolor="white")


def rank_rows(split: SplitMatrices, score: str, edge_ranks: np.ndarray) -> list[Row]:
    """Return the mean and the percentiles of the ranks in each bin of the users' and of the items' degrees."""
    part = split.parts["test"]
    sides = target_degrees(np.diff(part.histories.indptr), count_item_degrees(split.train), part.targets)
    names = ("p05", "p25", "p50", "p75", "p95")
    return [
        {"side": side, "score": score, "degree_low": cell.low, "degree_high": cell.high, "edges": cell.edges,
         "mean_rank": cell.mean, **dict(zip(names, cell.percentiles, strict=True))}
        for side, cell in group_ranks_by_degree(edge_ranks, sides)
    ]  # fmt: skip


def print_table(title: str, header: Iterable[object], rows: Iterable[Iterable[object]]) -> None:
    """Print rows in columns, numbers to the right."""
    cells = [[f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print(f"\n{title}")
    for line in cells:
        first, *others = (cell.ljust(width) if at == 0 else cell.rjust(width)
                          for at, (cell, width) in enumerate(zip(line, widths, strict=True)))  # fmt: skip
        print("  ".join([first, *others]))


def print_lines(title: str, lines: Mapping[str, list[Row]]) -> None:
    """Print a column of mean ranks of each line, over all held-out likes and in each bin of degrees."""
    cells = [{(row["degree_low"], row["degree_high"]): row["mean_rank"] for row in rows} for rows in lines.values()]
    of_lines = ([figures.column_values(rows, name) for name in ("mean_rank", "edges")] for rows in lines.values())
    every = ["all", *(float(np.average(ranks, weights=edges)) for ranks, edges in of_lines)]
    print_table(title, ["degree", *lines], [every, *([f"{low}-{high}", *(of.get((low, high), "") for of in cells)]
                                                     for low, high in sorted(set().union(*cells)))])  # fmt: skip


def draw_lines(name: str, title: str, side: str, lines: Mapping[str, list[Row]]) -> plotting.Panel:
    """Draw the mean rank by degree; items and users without likes have no place on the logarithmic axis."""
    panel, drawn = plotting.new_panel(name, title, width=5.0, height=3.8), []
    for number, (label, rows) in enumerate(lines.items()):
        with_likes = [row for row in rows if row["degree_high"]]
        drawn += with_likes
        centres, means = figures.bin_centres(with_likes), figures.column_values(with_likes, "mean_rank")
        panel.axes.plot(centres, means, label=label, **plotting.line_style(number))
    figures.set_rank_axes(panel, drawn, side)
    panel.axes.set(title=title)
    plotting.add_legend_below(panel)
    return panel


def on_side(rows: list[Row], side: str, score: str | None = None) -> list[Row]:
    """Select the rows of one side of the degrees, and of one score if it is given."""
    return [row for row in rows if row["side"] == side and score in (None, row["score"])]


def own_lines(run: FinishedRun, side: str, names: Mapping[tuple[str, str], str]) -> dict[str, list[Row]]:
    """Select lines of the run's own models; `names` is what to call each pair of model and score."""
    by_list = group_rows(on_side(run.ranks, side), "model", "score")
    return {name: by_list[key] for key, name in names.items() if key in by_list}


def draw_random_graph(run: FinishedRun) -> None:
    """Draw Figures 6 and 7 of Paquet and Koenigstein: ranks by two scores at two r, beside BPR, and their spread."""
    refits = {r: run.refit("leave_one_out", GRAPH, r=r, gamma=None) for r in GRAPH_RATES}
    for side in ("user", "item"):
        own = {f"{called}, r = {r:g}": on_side(refit.rows, side, score)
               for score, called in GRAPH_SCORES.items() for r, refit in refits.items()}  # fmt: skip
        lines = own_lines(run, side, {(model, "score"): model for model in BASELINES}) | own
        title = f"Random graph, Figure 6: mean rank by {side} degree"
        print_lines(title, lines)
        run.save(draw_lines(f"random_graph_ranks-{side}", title, side, lines))
        for score, called in GRAPH_SCORES.items():
            rows = on_side(refits[0.5].rows, side, score)
            with_likes = [row for row in rows if row["degree_high"]]
            colour = plotting.LIGHT_COLOURS["blue" if score == "like" else "green"]
            name, title = f"random_graph_spread-{side}-{score}", f"{called}, r = 1/2, by {side} degree"
            run.save(_draw_percentile_bands(name, title, side, colour, with_likes))
            columns = ("mean_rank", "p05", "p25", "p50", "p75", "p95")
            print_table(f"Random graph, Figure 7: ranks by {title}", ["degree", *columns],
                        [[f"{row['degree_low']}-{row['degree_high']}", *(row[name] for name in columns)]
                         for row in rows])  # fmt: skip


def draw_paired_symbols(run: FinishedRun) -> None:
    """Draw Figures 2 to 4 and section 5 of Paquet, Koenigstein and Winther: ranks, and like, as r and K vary."""
    names = {(SYMBOLS, "popularity_x_like"): SYMBOLS}
    names |= {(GRAPH, score): f"{GRAPH}, {called}" for score, called in GRAPH_SCORES.items()}
    lines = own_lines(run, "user", names | {(model, "score"): model for model in BASELINES})
    title = "Paired symbols, Figure 2: mean rank by user degree"
    if lines:
        print_lines(title, lines)
        run.save(draw_lines("paired_symbols_ranks", title, "user", lines))
    refits = {r: run.refit("leave_one_out", SYMBOLS, r=r, like_r=None) for r in RATES}
    for score in next(iter(refits.values())).means:
        lines = {f"r = {r:g}": on_side(refit.rows, "user", score) for r, refit in refits.items()}
        title = f"Paired symbols, Figure 3: mean rank by {score}"
        print_lines(title, lines)
        run.save(draw_lines(f"paired_symbols_rates-{score}", title, "user", lines))
    above = []
    for r in SPREAD_RATES:
        rows = like_rows(refits[r])
        title = f"Paired symbols, Figure 4: like of held-out likes, r = {r:g}"
        panel = plotting.new_panel(f"paired_symbols_spread-{r:g}", title)
        slices = np.zeros((HISTOGRAM_BINS, NUM_SLICES))
        for row in rows:
            slices[:, row["low"] - 1] = np.array(row["histogram"]) / sum(row["histogram"])
        panel.axes.imshow(slices, "Blues", origin="lower", aspect="auto", extent=(0.5, NUM_SLICES + 0.5, 0, 1))
        panel.axes.set(title=f"Figure 4, r = {r:g}", xlabel="likes of a user in training", ylabel="like probability")
        run.save(panel)
        counts = np.sum([row["histogram"] for row in rows], axis=0)
        above.append([f"r = {r:g}", *(counts.reshape(-1, HISTOGRAM_BINS // 4).sum(axis=1) / counts.sum()).tolist()])
    quarters = ["0-1/4", "1/4-1/2", "1/2-3/4", "3/4-1"]
    print_table(f"Paired symbols, Figure 4: shares of like, users with 1 to {NUM_SLICES} likes", ["", *quarters], above)
    draw_factors(run)


def like_rows(refit: Refit) -> list[Row]:
    """Return the histogram of `like` of the held-out likes of users with so many likes, up to NUM_SLICES."""
    part = refit.split.parts["test"]
    sample = sample_likes(refit.model, None, refit.split.train, part)
    assert sample is not None  # paired_symbols has a like
    return [vars(one) for one in bin_likes_by_degree(sample.like[:, 0], sample.degrees)
            if 1 <= one.low == one.high <= NUM_SLICES]  # fmt: skip


def draw_factors(run: FinishedRun) -> None:
    """Draw the mean rank as K grows (section 5)."""
    refits = {k: run.refit("leave_one_out", SYMBOLS, factors=k) for k in FACTORS}
    panel = plotting.new_panel("paired_symbols_factors", "Mean rank for each number of factors", width=5.0, left=0.75)
    rows = []
    for number, score in enumerate(next(iter(refits.values())).means):
        means = [refit.means[score]["mean_rank"] for refit in refits.values()]
        rows.append([score, *(format_mean(mean) for mean in means)])
        draw_errors(panel, FACTORS, means, score, number)
    print_table("Paired symbols, section 5: mean rank by K", ["score", *FACTORS], rows)
    panel.axes.set(xlabel="factors, K", ylabel="mean rank")
    plotting.add_legend_below(panel)
    run.save(panel)


def draw_errors(panel: plotting.Panel, across: Iterable[float], means: list[Mean], label: str, number: int) -> None:
    """Draw means with two standard errors."""
    errors = [2 * (mean.standard_error or 0.0) for mean in means]
    panel.axes.errorbar(list(across), [mean.value for mean in means], errors, label=label, elinewidth=0.8,
                        **plotting.line_style(number))  # fmt: skip


def format_mean(mean: Mean) -> str:
    """Format a mean with its standard error."""
    return f"{mean.value:.4f}" if mean.standard_error is None else f"{mean.value:.4f} ± {mean.standard_error:.4f}"


def draw_binary_matrix(run: FinishedRun) -> None:
    """Draw boxes 9 and 10 of the poster: minibatch sizes for each way to draw entries, and the rank at fixed sizes."""
    drawn = {way: run.refit("leave_one_out", ENTRIES, sampling=way) for way in STRATEGIES}
    held = {}
    for size in HELD_SIZES:
        with patch.multiple(inference, LEAST_BATCH=size, MOST_BATCH=size):
            held[size] = run.refit("leave_one_out", ENTRIES)
    sizes = plotting.new_panel("binary_matrix_sizes", "Entries in a minibatch after each pass", width=5.0, left=0.75)
    ranks = plotting.new_panel("binary_matrix_ranks", "Mean rank at a minibatch size", width=5.0, left=0.75)
    shown = [at for at in (1, 2, 5, 10, 20, 40, 80) if at <= len(drawn["uniform"].model.minibatches)]
    rows = []
    for number, (way, refit) in enumerate(drawn.items()):
        [mean], numbers = (of["mean_rank"] for of in refit.means.values()), refit.model.minibatches
        colour = plotting.LIGHT_COLOURS[plotting.HUES[number]]
        sizes.axes.plot(np.arange(1, len(numbers) + 1), numbers, label=way, color=colour)
        ranks.axes.axhline(mean.value, label=f"{way}, size by noise", color=colour)
        rows.append([way, *(f"{numbers[min(at, len(numbers)) - 1]:,.0f}" for at in shown), format_mean(mean)])
    print_table("Binary matrix, box 9: entries in a minibatch after each pass, and the mean rank",
                ["sampling", *shown, "mean rank"], rows)  # fmt: skip
    means = [next(iter(refit.means.values()))["mean_rank"] for refit in held.values()]
    print_table("Binary matrix, box 10: mean rank at a size", HELD_SIZES, [map(format_mean, means)])
    draw_errors(ranks, HELD_SIZES, means, "held at a size", len(STRATEGIES))
    every = np.concatenate([refit.model.minibatches for refit in drawn.values()])
    plotting.set_log_axis(sizes.axes, "y", every.min(), max(every.max(), 2 * every.min()))
    sizes.axes.set(xlabel="pass", ylabel="entries in a minibatch")
    plotting.set_log_axis(ranks.axes, "x", HELD_SIZES[0], HELD_SIZES[-1])
    ranks.axes.set(xlabel="entries in a minibatch", ylabel="mean rank")
    for panel in (sizes, ranks):
        plotting.add_legend_below(panel)
        run.save(panel)


def draw_mrf(run: FinishedRun) -> None:
    """Print Tables 1 and 2 of Steck, and draw Table 2: accuracy against training time as sparsity and r vary."""
    dense = {name: run.refit("strong_generalization", name) for name in TABLE_1 if name in MODELS}
    sparse = {(density, r): run.refit("strong_generalization", SPARSE, density=density, r=r)
              for density in DENSITIES for r in DENSITY_RATES}  # fmt: skip
    called = {f"{SPARSE}, {100 * density:g} %, r = {r:g}": refit for (density, r), refit in sparse.items()}
    for title, refits in (("Table 1", dense), ("Table 2", called)):
        rows = [[name, *(format_mean(refit.means["score"][metric]) for metric in TABLE_METRICS), refit.cpu_seconds]
                for name, refit in refits.items()]  # fmt: skip
        print_table(f"Markov random fields, {title}", ["model", *TABLE_METRICS, "CPU s"], rows)
    panel = plotting.new_panel("mrf_sparse_costs", "Accuracy against training time", width=5.0, left=0.75)
    for number, density in enumerate(DENSITIES):
        line = [sparse[density, r] for r in DENSITY_RATES]
        draw_errors(panel, [refit.cpu_seconds for refit in line], [one.means["score"]["ndcg@100"] for one in line],
                    f"{100 * density:g} %", number)  # fmt: skip
    seconds = [max(refit.cpu_seconds, 1e-3) for refit in sparse.values()]
    plotting.set_log_axis(panel.axes, "x", min(seconds), max(*seconds, 2 * min(seconds)))
    panel.axes.set(xlabel="training, CPU seconds, for r = 0, .1 and .5 from the right", ylabel="ndcg@100")
    plotting.add_legend_below(panel)
    run.save(panel)


PAPERS: dict[str, Callable[[FinishedRun], None]] = {
    "random_graph": draw_random_graph,
    "paired_symbols": draw_paired_symbols,
    "binary_matrix": draw_binary_matrix,
    "mrf": draw_mrf,
}


def main(arguments: list[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, dataset="demo", home=Path("var"), out=Path("figures"),
                            papers=list(PAPERS), threads=1)  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    run = FinishedRun(Home(options.home, options.dataset), options.out, options.threads)
    with plotting.plot_style():
        for paper in options.papers:
            PAPERS[paper](run)


def _draw_percentile_bands(name: str, title: str, side: str, colour: str, rows: list[Row]) -> plotting.Panel:
    """Draw the bands p05 to p95 and p25 to p75 of each bin, the median and the mean."""
    panel = plotting.new_panel(name, title, width=3.0, height=2.4)
    axes, degrees = panel.axes, figures.bin_centres(rows)
    for low, high, alpha in (("p05", "p95", 0.16), ("p25", "p75", 0.34)):
        ends = figures.column_values(rows, low), figures.column_values(rows, high)
        axes.fill_between(degrees, *ends, color=colour, alpha=alpha, linewidth=0)
    axes.plot(degrees, figures.column_values(rows, "p50"), color=colour)
    axes.plot(degrees, figures.column_values(rows, "mean_rank"), color=colour, linestyle=(0, (3, 2)), linewidth=1.1)
    figures.set_rank_axes(panel, rows, side)
    axes.set(title=title, ylabel="rank", ylim=(0, 1.02))
    return panel


if __name__ == "__main__":
    main()
