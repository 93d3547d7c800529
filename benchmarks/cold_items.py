"""Rank items without a training edge by their attributes, on MovieLens' genres and on a generated log.

    python -m benchmarks.cold_items [--films FOLDER] [--seeds 3]

A tenth of the items has no training edge and a tenth of the other edges is held out; new and known items are ranked
among themselves, by nDCG@100. FOLDER has ratings.csv and movies.csv of ml-latest-small, with genres and years; without
it a shop's log is drawn, in which an item's traits follow its category, brands and price to 70 %, and how often users
look at it does not. `truth` ranks the shop's items by the probability of a look times that of a like, which no
attribute tells. Settings are the defaults; those of irspack's feature-aware iALS, if it is installed, are the
best of eight on items drawn from the training edges. Prints means over users with standard errors, and the paired
difference of `wmf` to each row. Models without attributes have no scores of new items. For a small run: `--seeds 1`.
"""

import argparse
import importlib.util
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix
from scipy.special import expit

import oneclass
from benchmarks.common import Part, build_matrix, format_mean, print_head, print_row, rank_users
from oneclass.models.evaluation.metrics import compare_paired

HELD_OUT_SHARE, OWN_VARIANCE, TRAITS = 0.1, 0.3, 8
USERS, ITEMS, LOOKS = 2500, 1500, 60
MODELS = {"popularity": oneclass.Popularity, "wmf": oneclass.WMF, "random_graph": oneclass.RandomGraph,
          "mrf_dense": oneclass.MRFDense}  # fmt: skip
IRSPACK_GRID = tuple(product((32, 128), (3e-3, 1e-2), (1e-1, 10.0)))  # factors, reg, lambda_item_feature
SCORES = {"random_graph": "popularity_x_odds"}
Log = tuple[csr_matrix, pl.DataFrame, np.ndarray | None]  # likes, attributes of the items, and the scores of `truth`


def draw_shop(seed: int) -> Log:
    """Draw items with attributes, traits that follow these, and the likes of what users look at."""
    random = np.random.default_rng(seed)
    category, brand, price = (
        random.integers(0, 25, ITEMS),
        random.integers(0, 40, (ITEMS, 2)),
        random.normal(size=ITEMS),
    )
    explained = random.normal(size=(25, TRAITS))[category] + random.normal(size=(40, TRAITS))[brand].sum(axis=1)
    explained += np.outer(price, random.normal(size=TRAITS))
    explained = (explained - explained.mean(axis=0)) / explained.std(axis=0)
    items = np.sqrt(1 - OWN_VARIANCE) * explained + np.sqrt(OWN_VARIANCE) * random.normal(size=explained.shape)
    like = expit(random.normal(size=(USERS, TRAITS)) @ items.T * 3 / np.sqrt(TRAITS) - 2)
    popularity = random.pareto(1.5, ITEMS) + 0.1
    look = np.minimum(1, LOOKS * popularity / popularity.sum())
    liked = np.argwhere(random.random(like.shape) < look * like)
    brands = [[f"b{one}" for one in sorted(set(of))] for of in brand.tolist()]
    table = {"item_id": np.arange(ITEMS), "category": [f"c{one}" for one in category], "brands": brands, "price": price}
    return build_matrix(*liked.T, like.shape), pl.DataFrame(table), like * look


def load_films(folder: Path, seed: int) -> Log:
    """Read the ratings of 4 and more, and the genres and years."""
    ratings = pl.read_csv(folder / "ratings.csv").filter(pl.col("rating") >= 4).select("userId", "movieId")
    # Ids follow age and popularity, by which ties must not be broken.
    ids = ratings.select("movieId").unique().sort("movieId").sample(fraction=1, shuffle=True, seed=0)
    films = pl.read_csv(folder / "movies.csv").select(
        "movieId",
        pl.col("genres").str.split("|"),
        year=pl.col("title").str.extract(r"\((\d{4})\)\s*$").cast(pl.Float64),
    )
    table = ids.with_row_index("item_id").join(films, on="movieId", how="left", maintain_order="left").drop("movieId")
    columns = ratings.join(ids.with_row_index("column"), on="movieId", how="left", maintain_order="left")["column"]
    users = np.unique(ratings["userId"].to_numpy(), return_inverse=True)[1]
    likes = build_matrix(users, columns.to_numpy(), (users.max() + 1, len(ids)))
    return likes, table.with_columns(pl.col("item_id").cast(pl.Int64)), None


def hold_out(likes: csr_matrix, seed: int) -> tuple[csr_matrix, csr_matrix, np.ndarray]:
    """Draw new items and held-out edges; returns the training edges, the targets, and whether each item is new."""
    generator = np.random.default_rng([seed, 1])
    is_new = generator.random(likes.shape[1]) < HELD_OUT_SHARE
    held_out = is_new[likes.indices] | (generator.random(likes.nnz) < HELD_OUT_SHARE)
    rows = np.repeat(np.arange(likes.shape[0]), np.diff(likes.indptr))
    train, targets = (
        build_matrix(rows[of], likes.indices[of], likes.shape)
        for of in (~held_out, held_out & np.isin(rows, rows[~held_out]))
    )
    return train, targets, is_new


def iterate_scores(train: csr_matrix, table: pl.DataFrame, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and the scores of each row, (users, items)."""
    rows, described = np.arange(train.shape[0]), oneclass.Interactions.from_matrix(train, items=table)
    for data, label in ((described, "{} by attributes"), (train, "{}")):
        for name, kind in MODELS.items():
            model = kind(seed=seed).fit(data)
            yield label.format(name), model.scores(train, users=rows, score=SCORES.get(name))
    if importlib.util.find_spec("irspack") is None:
        print("irspack is not installed; its row is left out")
        return
    earlier, targets, is_new = hold_out(train, seed + 1000)
    is_new &= np.bincount(train.indices, minlength=train.shape[1]) > 0

    def judge(settings: tuple[int, float, float]) -> float:
        of = rank_both(fit_irspack(earlier, described.item_features, seed, *settings), earlier, targets, is_new)
        return sum(values.mean() for values in of.values())

    best = max(IRSPACK_GRID, key=judge)
    yield "irspack's iALS by attributes", fit_irspack(train, described.item_features, seed, *best)


def fit_irspack(
    train: csr_matrix, features: csr_matrix, seed: int, factors: int, reg: float, penalty: float
) -> np.ndarray:
    """Return the scores of irspack's feature-aware iALS, of items without an edge by their features."""
    from irspack import IALSRecommender

    alpha0 = 12 * train.nnz / np.prod(train.shape)  # as wmf's default, for one range of `reg`
    own = {"item_features": features, "lambda_item_feature": penalty, "random_seed": seed}
    model = IALSRecommender(train, n_components=factors, alpha0=alpha0, reg=reg, **own)
    model.start_learning()
    for _ in range(model.train_epochs):
        model.run_epoch()
    items, without = np.array(model.get_item_embedding()), np.bincount(train.indices, minlength=train.shape[1]) == 0
    items[without] = model.compute_item_embedding_from_features(features[without])
    return model.get_user_embedding() @ items.T


def rank_both(scores: np.ndarray, train: csr_matrix, targets: csr_matrix, is_new: np.ndarray) -> dict[str, np.ndarray]:
    """Return nDCG@100 of each user with such a target, over new and over known items."""
    found = {}
    for kind, chosen in (("new", is_new), ("known", ~is_new)):
        tested = np.flatnonzero(np.diff(targets[:, chosen].indptr))
        part = Part(train[:, chosen][tested], targets[:, chosen][tested], tested)
        found[kind] = rank_users(lambda _, rows, chosen=chosen: scores[rows][:, chosen], part)["ndcg@100"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--films", type=Path, metavar="FOLDER", help="folder of ml-latest-small")
    parser.add_argument("--seeds", type=int, default=3, help="draws of the log, and of new items")
    options = parser.parse_args()
    found: dict[str, dict[str, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    for seed in range(1, options.seeds + 1):
        likes, table, truth = load_films(options.films, seed) if options.films else draw_shop(seed)
        train, targets, is_new = hold_out(likes, seed)
        scored = iterate_scores(train, table, seed)
        for name, scores in [*scored, *([("truth", truth)] if truth is not None else [])]:
            for kind, values in rank_both(scores, train, targets, is_new).items():
                found[name][kind].append(values)
    print(f"{likes.shape[0]:,} users, {likes.shape[1]:,} items, {likes.nnz:,} likes, {options.seeds} draws\n")
    print_head(["row", "new items", "wmf minus this", "known items", "wmf minus this"])
    best = {kind: np.concatenate(of) for kind, of in found["wmf by attributes"].items()}
    for name, kinds in found.items():
        cells = []
        for kind, draws in kinds.items():
            values = np.concatenate(draws)
            gain = compare_paired(best[kind], values)
            has_value = kind == "known" or name not in MODELS
            paired = f"{gain.difference:+.4f} ± {gain.standard_error or 0:.4f}"
            cells += [format_mean(values), paired] if has_value else ["", ""]
        print_row([name, *cells])


if __name__ == "__main__":
    main()
