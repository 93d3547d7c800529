"""Compare fits with other libraries' of the same kind: CPU seconds, and the ranking reached.

    python -m benchmarks.fits [--log 30000 17000 700000] [--models wmf slim] [--threads 1]
    python -m benchmarks.fits --ratings ratings.csv
    python -m benchmarks.fits --lines train.txt

The log is drawn with so many users, items and edges and a long tail, or read: user_id,item_id,rating, of which ratings
of 4 and more are edges, or a user and the user's items a line. One edge of each user is held out. Models run at the
weights and penalties of their peers; all fits are in this process, ours after one that compiles, with the set-up
included. A peer that is not installed is left out (`benchmarks.peers` says how to install them). Prints the CPU seconds
of each fit, the peer's over ours, and nDCG@100 of the held-out edges, over `--users` users at most; and the same of
ranking random scores of these users, beside irspack. For a small run: no options.
"""

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from benchmarks.common import (
    USERS_PER_BLOCK,
    Part,
    Scorer,
    build_matrix,
    draw_log,
    parse_options,
    print_head,
    print_row,
    rank_users,
    time_call,
)
from benchmarks.peers import PEERS, fit_hpfrec, fit_implicit_bpr, fit_implicit_knn, fit_irspack, is_installed
from oneclass.models.hpf import model as hpf_model
from oneclass.models.numerics.threads import limit_threads
from oneclass.models.registry import MODELS
from oneclass.models.wmf import model as wmf_model

RENDLE = {"factors": 64, "iterations": 16, "unobserved_weight": 0.02, "regularization": 0.01}
IALS, WALKS = {"n_components": 64, "alpha0": RENDLE["unobserved_weight"]}, {"alpha": 1.0, "beta": 0.2}
NEIGHBOURS, L1, L2 = 100, 5.0, 200.0


def list_pairs(users: int) -> list[tuple[str, dict[str, Any], str, Callable, dict[str, Any]]]:
    """List our models with their settings, and the name, fit and settings of the peer of each."""
    ease, bpr = {"alpha": 0.0, "centred": False, "user_weight_exponent": 0.0, "l2": 500.0}, {"factors": 64}
    slim = {"l1": L1, "l2": L2, "alpha": 0.0, "user_weight_exponent": 0.0}
    irspack_slim = {"kind": "SLIMRecommender", "alpha": (L1 + L2) / users, "l1_ratio": L1 / (L1 + L2), "tol": 1e-5}
    cosine, walks = ({"similarity": kind, "neighbours": NEIGHBOURS} for kind in ("cosine", "rp3beta"))
    return [
        ("wmf", RENDLE, "irspack_ials", fit_irspack, PEERS["irspack_ials"].settings | IALS),
        ("bpr_popularity", {**bpr, "epochs": 20}, "implicit_bpr", fit_implicit_bpr,
         {**bpr, "iterations": 20, "learning_rate": 0.05, "regularization": 0.01}),
        ("hpf", {"max_iterations": 100}, "hpfrec", fit_hpfrec, {"k": 20, "maxiter": 100}),
        ("mrf_dense", ease, "irspack_ease", fit_irspack, {"kind": "DenseSLIMRecommender", "reg": 500.0}),
        ("slim", slim, "irspack_slim", fit_irspack, irspack_slim),
        ("item_knn", cosine, "implicit_cosine", fit_implicit_knn, {"kind": "CosineRecommender", "K": NEIGHBOURS}),
        ("item_knn", {**walks, **WALKS}, "irspack_rp3beta", fit_irspack,
         {"kind": "RP3betaRecommender", "top_k": NEIGHBOURS, **WALKS}),
    ]  # fmt: skip


def load_log(options: argparse.Namespace) -> csr_matrix:
    """Draw or read the log."""
    if options.lines:
        lines = [list(map(int, line.split()[1:])) for line in Path(options.lines).read_text().splitlines()]
        users, items = np.repeat(np.arange(len(lines)), list(map(len, lines))), np.concatenate(lines).astype(int)
    elif options.ratings:
        likes = pl.read_csv(options.ratings).filter(pl.col("rating") >= 4)
        users, items = (np.unique(likes[name], return_inverse=True)[1] for name in ("user_id", "item_id"))
    else:
        return draw_log(*options.log)
    return build_matrix(users, items, (users.max() + 1, items.max() + 1))


def hold_out_one(likes: csr_matrix, users: int) -> tuple[csr_matrix, Part]:
    """Hold out a random edge of each user with at least two; returns the training edges and the first users."""
    degrees = np.diff(likes.indptr)
    chosen = likes.indptr[:-1] + (np.random.default_rng(0).random(len(degrees)) * degrees).astype(np.int64)
    held = np.zeros(likes.nnz, dtype=bool)
    held[chosen[degrees >= 2]] = True
    rows = np.repeat(np.arange(len(degrees)), degrees)
    train, targets = (build_matrix(rows[of], likes.indices[of], likes.shape) for of in (~held, held))
    tested = np.flatnonzero(np.diff(targets.indptr))[:users]
    return train, Part(train[tested], targets[tested], tested)


def rank(score: Scorer, part: Part) -> str:
    """Return the cell of nDCG@100."""
    return f"{np.nanmean(rank_users(score, part)['ndcg@100']):.4f}"


def compare_evaluations(part: Part, threads: int) -> list[str]:
    """Rank random scores and average all metrics; beside it irspack's nDCG@100 of the same scores."""
    from irspack.evaluation import Evaluator

    scores = np.random.default_rng(0).random(part.targets.shape, dtype=np.float32)
    evaluator = Evaluator(part.targets, masked_interactions=part.histories, n_threads=threads)

    def evaluate() -> dict[str, np.ndarray]:
        blocks = iter(np.split(scores, range(USERS_PER_BLOCK, len(scores), USERS_PER_BLOCK)))
        return rank_users(lambda histories, rows: next(blocks), part)

    evaluate()  # compiles
    with limit_threads(threads):
        own, _, cpu, _ = time_call(evaluate, 3)
    peer, _, peer_cpu, _ = time_call(partial(evaluator.get_scores_from_score_matrix, scores, [100]), 3)
    ndcg, of_peer = f"{own['ndcg@100'].mean():.5f}", f"{peer['ndcg@100']:.5f}"
    return ["evaluation", f"{cpu:.3f}", ndcg, "irspack", f"{peer_cpu:.3f}", f"{peer_cpu / cpu:.1f}", of_peer]


def main() -> None:
    options = parse_options(__doc__, log=[300, 200, 4000], ratings="", lines="", models=[], users=5000, threads=1)
    warnings.filterwarnings("ignore")
    train, part = hold_out_one(load_log(options), options.users)
    print(f"{train.shape[0]:,} users, {train.shape[1]:,} items, {train.nnz:,} edges, {options.threads} threads\n")
    print_head(["model", "CPU s", "nDCG@100", "peer", "its CPU s", "times ours", "its nDCG@100"])
    for name, settings, other, peer, own_settings in list_pairs(train.shape[0]):
        if options.models and name not in options.models:
            continue
        kind = MODELS[name]
        # Passes of wmf and hpf are all made, as their peers make them.
        all_passes = partial(patch.object, attribute="TOLERANCE", new=0.0)
        with threadpool_limits(options.threads), all_passes(wmf_model), all_passes(hpf_model):
            kind(kind.Settings(**settings), threads=options.threads).fit(train[:50])
            model, _, cpu, _ = time_call(partial(kind(kind.Settings(**settings), threads=options.threads).fit, train))
            cells = [name, f"{cpu:.2f}", rank(lambda histories, rows, of=model: of.scores(histories, users=rows), part)]
            if is_installed(other):
                scorer, _, own, _ = time_call(partial(peer, train, options.threads, 0, **own_settings))
                by_row = other in ("implicit_bpr", "hpfrec")
                ndcg = rank(lambda histories, rows, of=scorer, by=by_row: of(rows if by else histories), part)
                cells += [other, f"{own:.2f}", f"{own / max(cpu, 1e-9):.1f}", ndcg]
        print_row(cells)
    if is_installed("irspack"):
        print_row(compare_evaluations(part, options.threads))


if __name__ == "__main__":
    main()
