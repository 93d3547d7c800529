"""The price of variety: nDCG lost by re-ranked lists, against the similarity of their items.

    python -m benchmarks.accuracy.variety [--root ../shared/data] [--logs ml-100k ...] [--model wmf] [--users 1000]

A fifth of the likes of each user with five or more is held out, drawn with the seed; of gowalla, every tenth user is
taken. The model is fitted on the rest, with its default settings. Of its 100 best unseen items for a user, each
re-ranker picks 20 (`oneclass.models.reranking`), by random projections of the items' centred columns or by the model's
item vectors. The similarity of a list is the mean correlation of the training columns of two of its items, exact,
whatever the re-ranker reads; their cosine also counts that popular items share many users. Columns: the loss of nDCG@20
and of nDCG@100 (the list, then the other candidates in their order) as a share of that of the best 20, ± one standard
error, paired over users; and the shares of similarity and of cosine lost. The last table interpolates the losses at a
quarter less similarity; the aim counts nDCG@100, the main metric.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.evaluation.metrics import mean_and_error
from oneclass.models.registry import MODELS
from oneclass.models.reranking import METHODS, project_items, rerank, unit_rows

CANDIDATES, LENGTH, MIN_LIKES = 100, 20, 5
HELD_OUT_SHARE = 0.2
STRENGTHS = tuple(step / 20 for step in range(1, 20))
AIM_SIMILARITY_LOST, AIM_NDCG_LOST = 0.25, 0.01
USERS_PER_BLOCK = 250
GOWALLA_SHARE = 10


def read_table(file: Path, separator: str, minimum: float, *, has_header: bool = True) -> pl.DataFrame:
    """Read user, item and value columns, and keep values from a minimum on."""
    table = pl.read_csv(file, separator=separator, has_header=has_header).select(pl.nth(0, 1, 2))
    return table.filter(pl.nth(2) >= minimum).select(pl.nth(0).alias("user"), pl.nth(1).alias("item"))


def read_lines(file: Path, *, first_is_user: bool, every: int = 1) -> pl.DataFrame:
    """Read a line of items per user, behind the user's id or the number of items."""
    rows = [list(map(int, line.split())) for line in file.read_text().splitlines()][::every]
    users = [row[0] if first_is_user else number for number, row in enumerate(rows) for _ in row[1:]]
    return pl.DataFrame({"user": users, "item": [item for row in rows for item in row[1:]]})


LOGS: dict[str, Callable[[Path], pl.DataFrame]] = {
    "ml-100k": lambda root: read_table(root / "ml-100k/u.data", "\t", 4, has_header=False),
    "ml-latest-small": lambda root: read_table(root / "ml-latest-small/ratings.csv", ",", 4),
    "ml-1m": lambda root: read_table(root / "ml-1m/ratings.csv", ",", 4),
    "citeulike-a": lambda root: read_lines(root / "citeulike-a/users.dat", first_is_user=False),
    "lastfm-hetrec2011": lambda root: read_table(root / "lastfm-hetrec2011/user_artists.dat", "\t", 0),
    "gowalla": lambda root: read_lines(root / "gowalla/train.txt", first_is_user=True, every=GOWALLA_SHARE),
}


class SplitLog(NamedTuple):
    """Training likes and held-out likes, (users, items)."""

    train: csr_matrix
    held_out: csr_matrix


class Measures(NamedTuple):
    """Of some users' lists, float64 (users,) each; the last two are means over pairs of the first LENGTH items."""

    ndcg: np.ndarray
    ndcg_100: np.ndarray
    correlation: np.ndarray
    cosine: np.ndarray


def split_log(likes: pl.DataFrame, seed: int) -> SplitLog:
    """Hold out likes of users with MIN_LIKES or more."""
    pairs = likes.unique(maintain_order=True)
    users, items = (np.unique(pairs[name], return_inverse=True)[1] for name in ("user", "item"))
    draws = np.random.default_rng(seed).random(len(users))
    is_held_out = (draws < HELD_OUT_SHARE) & (np.bincount(users)[users] >= MIN_LIKES)
    parts = []
    for rows in (~is_held_out, is_held_out):
        ones = np.ones(np.count_nonzero(rows), np.float32)
        parts.append(csr_matrix((ones, (users[rows], items[rows])), (users.max() + 1, items.max() + 1)))
        parts[-1].sort_indices()
    return SplitLog(*parts)


def rank_candidates(model: Model, log: SplitLog, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids and scores of the users' CANDIDATES best unseen items, (users, CANDIDATES)."""
    blocks = [users[start : start + USERS_PER_BLOCK] for start in range(0, len(users), USERS_PER_BLOCK)]
    ranked = [model.recommend(log.train[block], CANDIDATES, users=block.astype(np.int32)) for block in blocks]
    ids, scores = (np.concatenate(parts) for parts in zip(*ranked, strict=True))
    return ids, scores


def measure_lists(log: SplitLog, users: np.ndarray, lists: np.ndarray) -> Measures:
    """Measure full lists of candidates, of which the first LENGTH items are shown.

    The mean product of two of n unit vectors is (|sum|^2 - n) / (n (n - 1)).
    """
    count = log.train.shape[0]
    degrees = np.maximum(np.bincount(log.train.indices, minlength=log.train.shape[1]), 1)
    norms, deviations = np.sqrt(degrees), np.sqrt(degrees * (1 - degrees / count))
    discounts = 1 / np.log2(np.arange(2, CANDIDATES + 2))
    parts = []
    for start in range(0, len(users), USERS_PER_BLOCK):
        block, ranked = users[start : start + USERS_PER_BLOCK], lists[start : start + USERS_PER_BLOCK].astype(np.int64)
        targets = log.held_out[block].toarray()
        gains = np.take_along_axis(targets, ranked, axis=1) * discounts
        counts = targets.sum(axis=1).astype(int)
        ndcg = (
            gains[:, :n].sum(axis=1) / np.cumsum(discounts)[np.minimum(counts, n) - 1] for n in (LENGTH, CANDIDATES)
        )
        shown, starts = ranked[:, :LENGTH], np.arange(len(block) + 1) * LENGTH
        squares = []
        for lengths, is_centred in ((deviations, True), (norms, False)):
            weights = csr_matrix(((1 / lengths[shown]).ravel(), shown.ravel(), starts), (len(block), len(degrees)))
            sums = np.square((weights @ log.train.T).toarray()).sum(axis=1)
            squares.append(sums - is_centred * np.square((degrees / lengths)[shown].sum(axis=1)) / count)
        parts.append(Measures(*ndcg, *((square - LENGTH) / (LENGTH * (LENGTH - 1)) for square in squares)))
    return Measures(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def share_lost(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Return the mean loss as a share of the mean before, and its standard error."""
    lost = mean_and_error(before - after)
    assert lost.standard_error is not None
    return lost.value / before.mean(), lost.standard_error / before.mean()


def interpolate_losses(points: list[tuple[float, ...]]) -> list[float] | None:
    """Return what follows in a point where the similarity lost, its first number, is the aim; None if none loses it."""
    for (low, *before), (high, *after) in itertools.pairwise(points):
        if low <= AIM_SIMILARITY_LOST <= high:
            weight = (AIM_SIMILARITY_LOST - low) / (high - low)
            return [(1 - weight) * one + weight * other for one, other in zip(before, after, strict=True)]
    return None


def compare_log(name: str, args: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """Print the curves of a log, and yield the rows of the summary."""
    log = split_log(LOGS[name](args.root), args.seed)
    model = MODELS[args.model](seed=args.seed, threads=1).fit(log.train)
    users = np.flatnonzero((np.diff(log.held_out.indptr) > 0) & (np.diff(log.train.indptr) > 0))
    users = np.sort(np.random.default_rng(args.seed).permutation(users)[: args.users])
    ids, scores = rank_candidates(model, log, users)
    before = measure_lists(log, users, ids)
    representations = {"projections": project_items(log.train)}
    if (vectors := model.item_vectors()) is not None:
        representations["model"] = unit_rows(vectors)
    means = ", ".join(f"{name} {values.mean():.4f}" for name, values in before._asdict().items())
    print(f"\n{name}: {len(users)} users; {means}\n")
    print("| re-ranker | vectors | strength | nDCG@20 lost | nDCG@100 lost | similarity lost | cosine lost |")
    print("|---|---|---|---|---|---|---|")
    for method, (vectors_name, vectors) in itertools.product(METHODS, representations.items()):
        points = [(0.0,) * 6]
        for strength in STRENGTHS:
            picked = np.sort(rerank(ids, scores, vectors, LENGTH, strength=strength, method=method), axis=1)
            rest = np.argsort(_is_picked(picked), axis=1, kind="stable")[:, : CANDIDATES - LENGTH]
            after = measure_lists(log, users, np.take_along_axis(ids, np.concatenate([picked, rest], axis=1), axis=1))
            of_20, of_100, similarity, cosine = (
                share_lost(one, other) for one, other in zip(before, after, strict=True)
            )
            points.append((similarity[0], strength, *of_20, *of_100))
            cells = f"{_format(*of_20)} | {_format(*of_100)} | {similarity[0]:.1%} | {cosine[0]:.1%}"
            print(f"| {method} | {vectors_name} | {strength} | {cells} |", flush=True)
        if (at_aim := interpolate_losses(points)) is None:
            yield name, method, vectors_name, "", "", "", f"no, {points[-1][0]:.0%} at most"
        else:
            met = "yes" if at_aim[3] <= AIM_NDCG_LOST else "no"
            yield name, method, vectors_name, f"{at_aim[0]:.2f}", _format(*at_aim[1:3]), _format(*at_aim[3:]), met


def _format(share: float, error: float) -> str:
    return f"{share:.2%} ± {error:.2%}"


def _is_picked(picked: np.ndarray) -> np.ndarray:
    """Mark the picked positions among CANDIDATES, bool (users, CANDIDATES)."""
    marks = np.zeros((len(picked), CANDIDATES), dtype=bool)
    np.put_along_axis(marks, picked, True, axis=1)
    return marks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("../shared/data"), help="folder of the public logs")
    parser.add_argument("--logs", nargs="+", choices=LOGS, default=list(LOGS))
    parser.add_argument("--model", default="wmf", choices=MODELS)
    parser.add_argument("--users", type=int, default=1000, help="users whose lists are measured, at most")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rows = [row for name in args.logs for row in compare_log(name, args)]
    print(f"\nA quarter less similarity, for at most {AIM_NDCG_LOST:.0%} of nDCG@100:\n")
    print("| log | re-ranker | vectors | strength | nDCG@20 lost | nDCG@100 lost | aim met |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
