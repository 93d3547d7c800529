"""Rank items without a training edge by their attributes, on MovieLens' genres and on a generated log.

    python -m benchmarks.cold_items [--films FOLDER] [--seeds 3]

Under the protocol cold_items a share of the items has no training edge and is ranked among itself, and a share of the
other edges is to be found. FOLDER has ratings.csv and movies.csv of ml-latest-small, with genres and years; without it
a shop's log is drawn, in which an item's traits follow its category, brands and price to 70 %, and how often users look
at it does not. Settings are the defaults. Prints nDCG@100 of new items by each score, the mean over draws of the split
with the standard error over users. For a small run: `--seeds 1`.
"""

import logging
from pathlib import Path

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix
from scipy.special import expit

import oneclass
from benchmarks.common import build_matrix, parse_options, print_head, print_row

OWN_VARIANCE, TRAITS, USERS, ITEMS, LOOKS = 0.3, 8, 2500, 1500, 60
MODELS = (oneclass.Popularity, oneclass.WMF, oneclass.RandomGraph, oneclass.MRFDense, oneclass.SLIM)


def draw_shop(seed: int) -> tuple[csr_matrix, pl.DataFrame]:
    """Draw items with attributes, traits that follow these, and the likes of what users look at."""
    random = np.random.default_rng(seed)
    category, brand = random.integers(0, 25, ITEMS), random.integers(0, 40, (ITEMS, 2))
    price = random.normal(size=ITEMS)
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
    return build_matrix(*liked.T, like.shape), pl.DataFrame(table)


def load_films(folder: Path) -> tuple[csr_matrix, pl.DataFrame]:
    """Read the ratings of 4 and more, and the genres and years."""
    ratings = pl.read_csv(folder / "ratings.csv").filter(pl.col("rating") >= 4).select("userId", "movieId")
    # Ids follow age and popularity, by which ties must not be broken.
    ids = ratings.select("movieId").unique().sort("movieId").sample(fraction=1, shuffle=True, seed=0)
    year = pl.col("title").str.extract(r"\((\d{4})\)\s*$").cast(pl.Float64)
    films = pl.read_csv(folder / "movies.csv").select("movieId", pl.col("genres").str.split("|"), year=year)
    table = ids.with_row_index("item_id").join(films, on="movieId", how="left", maintain_order="left").drop("movieId")
    columns = ratings.join(ids.with_row_index("column"), on="movieId", how="left", maintain_order="left")["column"]
    users = np.unique(ratings["userId"].to_numpy(), return_inverse=True)[1]
    likes = build_matrix(users, columns.to_numpy(), (users.max() + 1, len(ids)))
    return likes, table.with_columns(pl.col("item_id").cast(pl.Int64))


def main() -> None:
    options = parse_options(__doc__, films="", seeds=3)
    logging.disable(logging.WARNING)
    likes, table = load_films(Path(options.films)) if options.films else draw_shop(1)
    data = oneclass.Interactions.from_matrix(likes, items=table)
    models, given = [kind() for kind in MODELS], {"protocol": "cold_items", "metrics": "ndcg@100_new_items"}
    found = [oneclass.evaluate(models, data, seed=seed, **given).metrics for seed in range(1, options.seeds + 1)]
    error = pl.col("standard_error").pow(2).sum().sqrt() / options.seeds
    means = pl.concat(found).group_by("model", "score", maintain_order=True).agg(pl.mean("value"), error)
    print(f"{likes.shape[0]:,} users, {likes.shape[1]:,} items, {likes.nnz:,} likes, {options.seeds} draws\n")
    print_head(["model", "score", "new items"])
    for model, score, value, error in means.iter_rows():
        print_row([model, score, f"{value:.4f} ± {error:.4f}"])


if __name__ == "__main__":
    main()
