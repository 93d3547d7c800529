"""Rank held-out edges by models in one Markdown table, on the splits that the pipeline makes.

    python -m benchmarks.accuracy.bayesian_models --dataset ml-1m --source ratings.csv popularity random_graph:r=0.5
    python -m benchmarks.accuracy.bayesian_models --dataset gowalla --split-files train.txt test.txt hpf:factors=40

A model is MODEL or MODEL:setting=value,...; `MODEL:tuned` starts from the data set's own settings. The log goes through
ingest, binarize and split in a temporary home. Every score of every model is one row:

    S            mean rank over users (eq. 23 of the random-graph paper), and its standard error
    median       of the users' mean ranks
    over items   S of the held-out edges of each item, averaged over items
    tail items   S of the held-out edges to items outside the head with 80 % of the training edges
    unseen       nDCG@100 of users held out of training (strong_generalization), by a fit of its own
    CPU s        of the fit on the first protocol, over all threads

Settings are chosen by `python -m flows.tune` on validation parts; this table is of the test part.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.flows.cli import parse_assignment
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import RunSettings, resolve_settings
from oneclass.models.base import Model
from oneclass.models.evaluation import metrics
from oneclass.models.random_graph.model import RandomGraph
from oneclass.models.random_graph.posterior import ITEM_BIAS, ITEM_FACTORS, USER_FACTORS
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.demo.story import make_demo
from oneclass.tasks.evaluate import rank_part_targets
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.split.stage import split
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.matrices import SplitMatrices

Splits = dict[str, SplitMatrices]
TAU_INDICES = {"tau_u": USER_FACTORS, "tau_v": ITEM_FACTORS, "tau_bv": ITEM_BIAS}
DEFAULT_PROTOCOLS = "leave_one_out,strong_generalization"
DEGREE_COLUMNS = ("edges", "S", "p05", "p25", "p50", "p75", "p95", "like < 1/2", "mean like")
HEAD_SHARE = 0.8  # of the training edges, on the head's items


def build_splits(run: RunSettings) -> Splits:
    """Build the splits of the run's protocols by the pipeline's stages."""
    sources = make_demo(run.home, run.demo, run.seed) if run.is_demo else run.split_files or run.sources
    files = ingest(run.home, run.dataset, sources, "benchmark").file_ids
    binarize(run.home, run.binarize, "benchmark")
    given_files = ((files[0],), (files[1],)) if run.split_files else None
    digests = split(
        run.home,
        run.split,
        "benchmark",
        protocols=run.protocols,
        seed=run.seed,
        ids_are_numbers=run.dataset.id_order == "number",
        given_files=given_files,
    ).digests
    return {protocol: matrices.load_split(run.home, digests[protocol]) for protocol in run.protocols}


def mask_tail_items(train: csr_matrix) -> np.ndarray:
    """Return bool (items,), False for the most popular items with 80 % of the edges."""
    degrees = np.bincount(train.indices, minlength=train.shape[1])
    order = np.argsort(-degrees, kind="stable")
    before = np.cumsum(degrees[order]) - degrees[order]
    return (before >= HEAD_SHARE * degrees.sum())[np.argsort(order)]


def compute_cells(model: Model, score: str, split_: SplitMatrices) -> tuple[dict[str, str], np.ndarray]:
    """Compute the table's cells for one score on the test part, and S of every held-out edge."""
    part = split_.parts["test"]
    of_users, of_edges, *_ = rank_part_targets(model, score, part)
    means = metrics.average_over_users(of_users)

    def format_mean(metric: str) -> str:
        error = means[metric].standard_error
        return f"{means[metric].value:.4f}" + ("" if error is None else f" ({error:.4f})")

    if split_.protocol == "strong_generalization":
        return {"nDCG@100, unseen (s.e.)": format_mean("ndcg@100")}, of_edges
    items = part.targets.indices
    edges = np.bincount(items)
    over_items = np.bincount(items, of_edges)[edges > 0] / edges[edges > 0]
    tail = of_edges[mask_tail_items(split_.train)[items]]
    cells = {
        "S (s.e.)": format_mean("mean_rank"),
        "median": format_mean("median_rank"),
        "over items": f"{over_items.mean():.4f}",
        "tail items": f"{tail.mean():.4f}",
    }
    if split_.protocol == "given":
        cells |= {"recall of all@20": format_mean("recall_of_all@20"), "nDCG@20": format_mean("ndcg@20")}
    return cells, of_edges


def fit_model(name: str, settings: ModelSettings, train: csr_matrix, run: RunSettings) -> tuple[Model, float]:
    """Fit a model; returns it with the CPU seconds."""
    began = time.process_time()
    model = MODELS[name](settings, seed=run.seed, threads=run.home.limits.threads).fit(train)
    return model, time.process_time() - began


def evaluate_model(
    name: str, settings: ModelSettings, splits: Splits, run: RunSettings, *, by_degree: bool = False
) -> Iterator[dict[str, str]]:
    """Yield the table's rows of a model, one for each score, over all protocols."""
    fit_model(name, settings, next(iter(splits.values())).train[:100], run)  # compiles
    changed = settings.model_dump(exclude_defaults=True).items()
    label = " ".join([name, ", ".join(f"{key}={value}" for key, value in changed)]).strip()
    rows = {score: {"model": label, "score": score} for score in MODELS[name].score_names}
    for split_ in splits.values():
        model, seconds = fit_model(name, settings, split_.train, run)
        for score, row in rows.items():
            row.setdefault("CPU s", f"{seconds:.1f}")
            cells, of_edges = compute_cells(model, score, split_)
            row |= cells
            if by_degree and split_.protocol != "strong_generalization":
                print_by_degree(model, f"{label}, {score}", split_, of_edges)
    yield from rows.values()


def print_by_degree(model: Model, title: str, split_: SplitMatrices, of_edges: np.ndarray) -> None:
    """Print S by the training degree of each held-out edge's user and item; for `like`, its error and mean too."""
    part, targets = split_.parts["test"], split_.parts["test"].targets
    row = np.repeat(np.arange(len(part.users)), np.diff(targets.indptr))
    item_degrees = np.bincount(split_.train.indices, minlength=split_.train.shape[1])
    sides = {"user": np.diff(part.histories.indptr)[row], "item": item_degrees[targets.indices]}
    if has_like := "like" in model.score_names:
        like = model.like(part.histories[row], users=part.rows[row], items=targets.indices[:, None])[0][:, 0]
        print(f"\n{title}: {np.mean(like < 0.5):.3f} of the held-out edges have a like below 1/2")
    if isinstance(model, RandomGraph):
        taus = {name: round(model.posterior.taus.mean(index), 2) for name, index in TAU_INDICES.items()}
        print(f"{title}: precisions {taus}, gamma {model.gamma:.3f}")
    for side, degrees in sides.items():
        rows = []
        for cell in metrics.group_by_degree(of_edges, degrees):
            numbers = [cell.mean, *cell.percentiles]
            if has_like:
                inside = like[(degrees >= cell.low) & (degrees <= cell.high)]
                numbers += [np.mean(inside < 0.5), np.mean(inside)]
            cells = [f"{cell.low}-{cell.high}", str(cell.edges), *(f"{number:.3f}" for number in numbers)]
            rows.append(dict(zip([f"{side} degree", *DEGREE_COLUMNS], cells)))
        print(f"\n{title}\n")
        print_table(rows)


def parse_model(text: str, run: RunSettings) -> tuple[str, ModelSettings]:
    """Parse MODEL:setting=value,..."""
    name, _, assignments = text.partition(":")
    listed = assignments.split(",") if assignments else []
    values = dict(run.dataset.models.get(name, {})) if "tuned" in listed else {}
    parsed = (parse_assignment(f"{name}.{assignment}") for assignment in listed if assignment != "tuned")
    return name, MODELS[name].Settings(**values | {key.partition(".")[2]: value for key, value in parsed})


def print_table(rows: list[dict[str, str]]) -> None:
    """Print rows as a Markdown table; the column of CPU seconds comes last."""
    columns = sorted(dict.fromkeys(key for row in rows for key in row), key="CPU s".__eq__)
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for row in rows:
        print(f"| {' | '.join(row.get(column, '') for column in columns)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL[:setting=value,...]")
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--source", action="append", default=[], help="a log; may be repeated")
    parser.add_argument("--split-files", nargs=2, default=())
    parser.add_argument("--protocols", help=f"comma-separated; {DEFAULT_PROTOCOLS}, or given with --split-files")
    parser.add_argument("--by-degree", action="store_true", help="also print S by degrees of users and items")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        protocols = options.protocols or ("given" if options.split_files else DEFAULT_PROTOCOLS)
        parameters = BackfillParameters(
            dataset=options.dataset,
            home=folder,
            source=options.source,
            seed=options.seed,
            split_files=options.split_files,
            protocols=protocols.split(","),
            threads=options.threads,
        )
        run = resolve_settings(parameters)
        splits = build_splits(run)
        first = next(iter(splits.values()))
        shape = " x ".join(map(str, first.train.shape))
        print(
            f"{run.dataset.name}: {shape}, {first.train.nnz} training edges, "
            f"{first.parts['test'].targets.nnz} held out, seed {run.seed}\n",
            flush=True,
        )
        rows = []
        for text in options.models:
            name, settings = parse_model(text, run)
            rows += evaluate_model(name, settings, splits, run, by_degree=options.by_degree)
        print_table(rows)


if __name__ == "__main__":
    main()
