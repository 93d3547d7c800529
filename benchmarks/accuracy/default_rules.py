"""Compare default settings of `wmf`, `slim` and `graph_filter` with the best of a grid around them, on many logs.

    python -m benchmarks.accuracy.default_rules --root ../shared/data [--models wmf slim] [--users 8000]

Each log is cut from a real one: its most popular items, and a geometric number of likes of each user, which gives short
sessions over few items as well as wide and sparse logs. 1,000 users are held out, with a fifth of their likes, at least
one, as targets, and nDCG@100 is compared. `grid` is the best point of the grid; `rule` is the point with the largest
mean gain over the logs of the other sources, so that no log chooses for itself.
"""

import argparse
from itertools import product
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.registry import MODELS
from oneclass.tasks.evaluate.ranking import rank_targets_by_score
from oneclass.tasks.stores.matrices import Part

Pairs = tuple[np.ndarray, np.ndarray]  # users and items of the likes
Shape = tuple[str, int, int]  # of a log, as in LOGS
Point = tuple[float, ...]  # of a grid

# Source, items, and mean number of likes drawn, at most the user's own.
LOGS = [
    ("ml-1m", 300, 4), ("gowalla", 300, 4), ("yelp2018", 300, 4), ("lastfm-hetrec2011", 300, 5),
    ("gowalla", 3300, 5), ("ml-1m", 3000, 5), ("citeulike-a", 3300, 5), ("yelp2018", 3300, 9), ("gowalla", 3300, 9),
    ("ml-1m", 300, 9), ("lastfm-hetrec2011", 3300, 9), ("ml-1m", 3000, 18), ("gowalla", 3300, 18),
    ("yelp2018", 3300, 18), ("gowalla", 15000, 6), ("yelp2018", 15000, 6), ("yelp2018", 15000, 18),
    ("ml-1m", 3000, 35), ("citeulike-a", 3300, 30), ("citeulike-a", 16980, 1000), ("lastfm-hetrec2011", 17632, 1000),
    ("ml-1m", 3700, 1000),
]  # fmt: skip
# Multiples of the defaults.
GRIDS = {
    "wmf": {"unobserved_weight": (0.5, 1.0, 2.0), "regularization": (0.5, 0.7, 1.0, 1.4, 2.0)},
    "slim": {"l1": (0.3, 1.0, 3.0), "l2": (0.3, 1.0, 3.0)},
    "graph_filter": {"low_pass": (0.33, 1.0, 3.0), "vectors": (0.5, 1.0, 2.0)},
}


def read_pairs(root: Path, source: str) -> Pairs:
    """Read the likes of a source; ratings below 4 are left out."""
    if source == "ml-1m":
        table = np.loadtxt(root / source / "ratings.csv", delimiter=",", skiprows=1, usecols=(0, 1, 2), dtype=np.int64)
        return tuple(table[table[:, 2] >= 4, :2].T)
    if source == "lastfm-hetrec2011":
        return tuple(np.loadtxt(root / source / "user_artists.dat", skiprows=1, usecols=(0, 1), dtype=np.int64).T)
    name = "users.dat" if source == "citeulike-a" else "train.txt"
    lines = [np.array(line.split(), dtype=np.int64) for line in (root / source / name).read_text().splitlines()]
    users = np.repeat(np.arange(len(lines)), [max(0, len(line) - 1) for line in lines])
    return users, np.concatenate([line[1:] for line in lines])


def cut_log(pairs: Pairs, items: int, mean: float, users: int, seed: int) -> csr_matrix:
    """Keep the most popular items, a geometric number of likes of each user, and some users with two likes or more."""
    generator = np.random.default_rng(seed)
    likes = csr_matrix((np.ones(len(pairs[0]), dtype=np.float32), pairs))
    likes.data[:] = 1
    popular = np.argsort(-np.bincount(likes.indices, minlength=likes.shape[1]), kind="stable")[:items]
    likes = likes[:, popular].tocsr()
    degrees = np.diff(likes.indptr)
    wanted = np.minimum(1 + generator.geometric(1 / (mean - 1), len(degrees)), degrees)
    likes = keep_random(likes, wanted, generator)
    rows = np.flatnonzero(np.diff(likes.indptr) >= 2)
    return likes[np.sort(generator.permutation(rows)[:users])]


def keep_random(likes: csr_matrix, counts: np.ndarray, generator: np.random.Generator) -> csr_matrix:
    """Keep so many random entries of each row."""
    rows = np.repeat(np.arange(likes.shape[0]), np.diff(likes.indptr))
    order = np.lexsort((generator.random(likes.nnz), rows))
    rank = np.arange(likes.nnz) - np.repeat(likes.indptr[:-1], np.diff(likes.indptr))
    chosen = order[rank < counts[rows]]
    matrix = csr_matrix(
        (np.ones(len(chosen), dtype=np.float32), (rows[chosen], likes.indices[chosen])), shape=likes.shape
    )
    matrix.sort_indices()
    return matrix


def hold_out(likes: csr_matrix, users: int, seed: int) -> tuple[csr_matrix, Part]:
    """Hold out users with a fifth of their likes as targets; returns the training matrix and the part."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(likes.shape[0])
    held, rest = np.sort(order[: min(users, likes.shape[0] // 5)]), np.sort(order[min(users, likes.shape[0] // 5) :])
    train = likes[rest]
    known = np.bincount(train.indices, minlength=likes.shape[1]) > 0
    train, held_out = train[:, known].tocsr(), likes[held][:, known].tocsr()
    degrees = np.diff(held_out.indptr)
    targets = keep_random(held_out, np.where(degrees >= 2, np.maximum(1, degrees // 5), 0), generator)
    histories = (held_out - targets).tocsr()
    histories.eliminate_zeros()
    return train, Part(histories, targets, np.arange(len(held), dtype=np.int32), None)


def evaluate_grid(name: str, train: csr_matrix, part: Part) -> dict[Point, float]:
    """Compute nDCG@100 at each point of the model's grid."""
    default = MODELS[name].Settings().resolve(train)

    def compute_ndcg(multiples: Point) -> float:
        settings = {
            setting: type(getattr(default, setting))(multiple * getattr(default, setting)) or 1
            for setting, multiple in zip(GRIDS[name], multiples, strict=True)
        }
        model = MODELS[name](**settings).fit(train)
        return float(rank_targets_by_score(model, part, on_progress=False)["score"].of_users["ndcg@100"].mean())

    return {multiples: compute_ndcg(multiples) for multiples in product(*GRIDS[name].values())}


def print_table(name: str, logs: list[tuple[Shape, csr_matrix, dict[Point, float]]]) -> None:
    """Print a row for each log: the default, the best of the grid, and the choice of the other sources' logs."""
    settings, default = ", ".join(GRIDS[name]), (1.0,) * len(GRIDS[name])
    print(f"\n| {name} | users x items | likes of a user | default | grid | at multiples of {settings} | rule |")
    print("|---|---|---|---|---|---|---|")
    gains: dict[str, list[float]] = {"grid": [], "rule": []}
    for (source, items, mean), train, values in logs:
        others = [of for (other, *_), _, of in logs if other != source]

        def gain_elsewhere(point: Point, others: list[dict[Point, float]] = others) -> float:
            return float(np.mean([of[point] / of[default] for of in others])) if others else float(point == default)

        best, rule = max(values, key=lambda point: values[point]), max(values, key=gain_elsewhere)
        gains["grid"].append(values[best] / values[default] - 1)
        gains["rule"].append(values[rule] / values[default] - 1)
        shape, likes = f"{train.shape[0]:,} x {train.shape[1]:,}", train.nnz / train.shape[0]
        print(
            f"| {source}, {items}, {mean} | {shape} | {likes:.1f} | {values[default]:.4f} | {values[best]:.4f} | "
            f"{best} | {values[rule]:.4f} |"
        )
    for which, of in gains.items():
        print(f"\n{which} over default: {np.mean(of):+.1%} on average, {min(of):+.1%} to {max(of):+.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="the folder of the logs' folders")
    parser.add_argument("--models", nargs="+", choices=GRIDS, default=list(GRIDS))
    parser.add_argument("--users", type=int, default=8000, help="of a log at most")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    read: dict[str, Pairs] = {}
    results: dict[str, list[tuple[Shape, csr_matrix, dict[Point, float]]]]
    results = {name: [] for name in options.models}
    for source, items, mean in LOGS:
        if source not in read:
            read[source] = read_pairs(options.root, source)
        train, part = hold_out(cut_log(read[source], items, mean, options.users, options.seed), 1000, options.seed)
        for name in options.models:
            results[name].append(((source, items, mean), train, evaluate_grid(name, train, part)))
    for name in options.models:
        print_table(name, results[name])


if __name__ == "__main__":
    main()
