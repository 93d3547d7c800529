"""Rank held-out items by models, with the columns of the papers' tables, on the splits that the pipeline makes.

    python -m benchmarks.paper_tables popularity random_graph:r=0.5 --dataset ml-1m --source ratings.csv
    python -m benchmarks.paper_tables hpf:factors=40 --dataset gowalla --split-files train.txt test.txt

A model is MODEL or MODEL:setting=value,...; the others of its settings are the defaults. Prints a row for each score of
each model:

    S            mean rank over users (eq. 23 of the random-graph paper), and its standard error
    median       of the users' mean ranks
    over items   S of the held-out edges of each item, averaged over items
    tail items   S of the held-out edges to items outside the head with 80 % of the training edges
    unseen       nDCG@100, recall@20 and recall@50 of users held out of training, by a fit of its own
    CPU s        of the last fit, after one that compiles

For a small run: `popularity --dataset demo --protocols leave_one_out`.
"""

import argparse
import json
from functools import partial

import numpy as np

from benchmarks.common import (
    Part,
    Split,
    add_log_flags,
    format_mean,
    load_splits,
    print_head,
    print_row,
    rank_users,
    time_call,
)  # fmt: skip
from oneclass.models.base import Model
from oneclass.models.evaluation.metrics import compute_edge_ranks
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.registry import MODELS

DEFAULT_PROTOCOLS = "leave_one_out,strong_generalization"
HEAD_SHARE, COMPILE_USERS = 0.8, 100


def parse_model(text: str, seed: int, threads: int) -> Model:
    """Parse MODEL:setting=value,..."""
    name, _, assignments = text.partition(":")
    values = {}
    for assignment in filter(None, assignments.split(",")):
        key, _, value = assignment.partition("=")
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value
    return MODELS[name](MODELS[name].Settings(**values), seed=seed, threads=threads)


def mask_tail_items(split: Split) -> np.ndarray:
    """Return bool (items,), False for the most popular items with 80 % of the training edges."""
    degrees = np.bincount(split.train.indices, minlength=split.train.shape[1])
    order = np.argsort(-degrees, kind="stable")
    before = np.cumsum(degrees[order]) - degrees[order]
    return (before >= HEAD_SHARE * degrees.sum())[np.argsort(order)]


def rank_edges(model: Model, score: str, part: Part) -> np.ndarray:
    """Compute S of every held-out edge."""
    blocks = []
    for first in range(0, part.targets.shape[0], 1000):
        block = slice(first, first + 1000)
        rows = None if part.rows is None else part.rows[block]
        scores = np.ascontiguousarray(model.scores(part.histories[block], users=rows, score=score), dtype=np.float32)
        blocks.append(compute_edge_ranks(rank_targets(scores, part.histories[block], part.targets[block])))
    return np.concatenate(blocks)


def compute_cells(model: Model, score: str, protocol: str, split: Split) -> dict[str, str]:
    """Compute the cells of one score on the test part."""
    of = rank_users(lambda histories, rows: model.scores(histories, users=rows, score=score), split.test)
    if protocol == "strong_generalization":
        return {f"{name}, unseen": format_mean(of[name]) for name in ("ndcg@100", "recall@20", "recall@50")}
    edges, items = rank_edges(model, score, split.test), split.test.targets.indices
    counts = np.bincount(items)
    over_items = np.bincount(items, edges)[counts > 0] / counts[counts > 0]
    cells = {
        "S": format_mean(of["mean_rank"]),
        "median": f"{np.median(of['mean_rank']):.4f}",
        "over items": f"{over_items.mean():.4f}",
        "tail items": f"{edges[mask_tail_items(split)[items]].mean():.4f}",
    }
    names = ("recall_of_all@20", "ndcg@20") if protocol == "given" else ("ndcg@100",)
    return cells | {name: format_mean(of[name]) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL[:setting=value,...]")
    add_log_flags(parser)
    parser.add_argument("--protocols", help="comma-separated; leave_one_out,strong_generalization by default")
    options = parser.parse_args()
    protocols = options.protocols or ("given" if options.split_files else DEFAULT_PROTOCOLS)
    splits = load_splits(options, protocols.split(","))
    for protocol, split in splits.items():
        shape = " x ".join(f"{size:,}" for size in split.train.shape)
        print(f"{protocol}: {shape}, {split.train.nnz:,} training edges, {split.test.targets.nnz:,} held out")
    rows: list[dict[str, str]] = []
    for text in options.models:
        build = partial(parse_model, text, options.seed, options.threads)
        build().fit(next(iter(splits.values())).train[:COMPILE_USERS])
        of_scores = {score: {"model": text, "score": score} for score in build().score_names}
        for protocol, split in splits.items():
            model, _, cpu, _ = time_call(partial(build().fit, split.train))
            for score, row in of_scores.items():
                row |= {**compute_cells(model, score, protocol, split), "CPU s": f"{cpu:.2f}"}
        rows += of_scores.values()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    print()
    print_head(columns)
    for row in rows:
        print_row(row.get(name, "") for name in columns)


if __name__ == "__main__":
    main()
