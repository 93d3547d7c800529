"""Compare graph_filter with RP3beta: CPU seconds of a fit, milliseconds of a user's scores and list, and accuracy.

    python -m benchmarks.speed.graph_filter --lines ../shared/data/gowalla/train.txt [--threads N] [--users N]
    python -m benchmarks.speed.graph_filter --made 30000 17000 700000

Both models have their default settings. `scores` are all scores of the first `--users` users with a held-out edge, as
evaluation computes them; `lists` the best 20 unseen items of these users in blocks of 1,024 or more, as publication
makes them. CPU time is the process's, the least of `--repeats`; everything is compiled and cached beforehand.
"""

import argparse
from functools import partial

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.speed.logs import add_log_arguments, draw_long_tailed, load_log
from benchmarks.speed.timing import time_least
from oneclass.models.base import Model
from oneclass.models.evaluation.metrics import compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.graph_filter import GraphFilter
from oneclass.models.item_knn import ItemKNN

LIST_LENGTH, USERS_PER_LIST_BLOCK = 20, 1024
METRICS = ("recall@20", "ndcg@100")


def make_lists(model: Model, train: csr_matrix, users: np.ndarray) -> None:
    """Find the best items of each user, without scoring all items if the model can."""
    size = max(USERS_PER_LIST_BLOCK, model.users_at_once)
    for start in range(0, len(users), size):
        block = users[start : start + size]
        histories = train[block]
        seen = histories.indptr, histories.indices
        if model.find_best_items(histories, LIST_LENGTH, seen, users=block) is None:
            for first in range(0, len(block), model.users_at_once):
                part = block[first : first + model.users_at_once]
                model.recommend(train[part], LIST_LENGTH, users=part)


def score_all(model: Model, train: csr_matrix, users: np.ndarray) -> None:
    """Compute the scores of each user."""
    for start in range(0, len(users), model.users_at_once):
        block = users[start : start + model.users_at_once]
        model.scores(train[block], users=block)


def compute_accuracy(model: Model, train: csr_matrix, held_out: csr_matrix, users: np.ndarray) -> list[float]:
    """Compute the means of METRICS over users."""
    blocks = []
    for start in range(0, len(users), model.users_at_once):
        block = users[start : start + model.users_at_once]
        ranks = rank_targets(model.scores(train[block], users=block), train[block], held_out[block])
        metrics = compute_user_metrics(ranks)
        blocks.append([metrics[name] for name in METRICS])
    return np.concatenate(blocks, axis=1).mean(axis=1).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_log_arguments(parser)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--users", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    train, held_out = load_log(options)
    users = np.flatnonzero(np.diff(held_out.indptr))[: options.users].astype(np.int32)
    print(
        f"{train.shape[0]:,} users, {train.shape[1]:,} items, {train.nnz:,} edges, {options.threads} thread(s); "
        f"{len(users):,} users are scored\n\n"
        "| model | fit, CPU s | scores, ms | lists, ms | recall@20 | nDCG@100 |\n|---|---|---|---|---|---|"
    )
    for kind in (GraphFilter, ItemKNN):
        kind(threads=options.threads).fit(draw_long_tailed(300, 200, 4000))
        model = kind(threads=options.threads)
        fit = time_least(partial(model.fit, train), options.repeats).cpu
        recall, ndcg = compute_accuracy(model, train, held_out, users)
        make_lists(model, train, users[:USERS_PER_LIST_BLOCK])
        scores, lists = (
            1e3 / len(users) * time_least(partial(work, model, train, users), options.repeats).cpu
            for work in (score_all, make_lists)
        )
        print(f"| {model.name} | {fit:.2f} | {scores:.3f} | {lists:.3f} | {recall:.4f} | {ndcg:.4f} |", flush=True)


if __name__ == "__main__":
    main()
