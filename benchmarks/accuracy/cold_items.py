"""Rank items without a training edge by their attributes, on MovieLens' genres and on generated logs.

    python -m benchmarks.accuracy.cold_items [--root ../shared/data] [--logs shop words films] [--seeds 3]

As under the protocol cold_items, a tenth of the items has no training edge and a tenth of the other edges is held out;
new and known items are ranked separately, by nDCG@100. In `shop` an item's traits follow its category, brands and
price, in `words` the words of a text, and a part of their variance is the item's own; `models.generator.likes` draws
the likes. `truth` ranks by how often an item is considered, which no attribute tells, times the probability that drew
the likes. `films` is ROOT/ml-latest-small with genres and year. Settings are the defaults; those of irspack, if it is
installed, are the best of a grid, on new items drawn from the training edges of the first draw. The table has means
over users with standard errors, and the paired differences of `wmf` and `random_graph` to each row: over the users of
all draws of a generated log, and over the means of each user of `films`. Models without attributes have no scores of
new items.
"""

import argparse
import importlib.util
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix
from scipy.special import expit

from oneclass.models.attributes.encoder import FeatureEncoder
from oneclass.models.degrees.distributions import power_law_with_mean
from oneclass.models.evaluation.metrics import compare_paired, compute_user_metrics, mean_and_error
from oneclass.models.evaluation.new_items import rank_known_items, rank_new_items
from oneclass.models.fit_options import FitOptions
from oneclass.models.generator.hidden_graph import draw_graph
from oneclass.models.generator.likes import LikeFactors, draw_like_factors, draw_likes, like_probabilities
from oneclass.models.numerics.adjacency import transpose
from oneclass.models.registry import MODELS

HELD_OUT_SHARE = 0.1
METRICS = ("new", "known")
MODELS_WITH_ATTRIBUTES = (("popularity", "score"), ("wmf", "score"), ("random_graph", "popularity_x_odds"))
FALLBACK = (("mrf_dense", "score"),)
USERS, ITEMS, CONSIDERED, LIKES, TRAITS = 2500, 1500, 150_000, 50_000, 8
OWN_VARIANCE = 0.3  # share of the variance of an item's traits that its attributes do not explain
IRSPACK_GRID = tuple(product((32, 128), (3e-3, 1e-2), (1e-1, 10.0)))

Log = tuple[csr_matrix, csr_matrix, np.ndarray | None]  # likes, features of the items, and the scores of `truth`
Scorer = Callable[[], np.ndarray]  # float32 (users, items)


def generate_log(kind: str, seed: int) -> Log:
    """Draw items with attributes, the traits by them, a hidden graph and the likes on it."""
    generator = np.random.default_rng(seed)
    frame, kinds = draw_shop(generator) if kind == "shop" else draw_texts(generator)
    features = FeatureEncoder.fit(frame, kinds).encode(frame)
    factors = draw_like_factors((USERS, ITEMS), TRAITS, 3.0, 0.5, seed)
    explained = features @ generator.normal(size=(features.shape[1], TRAITS + 1))
    explained = (explained - explained.mean(axis=0)) / explained.std(axis=0)
    items, bias = (
        np.sqrt(1 - OWN_VARIANCE) * explained[:, which] * own.std() + np.sqrt(OWN_VARIANCE) * own
        for which, own in ((slice(0, TRAITS), factors.items), (TRAITS, factors.item_bias))
    )
    factors = LikeFactors(factors.users, items.astype(np.float32), bias.astype(np.float32))
    degrees = [
        power_law_with_mean(CONSIDERED / count, power, 0.8 * other)
        for count, other, power in ((USERS, ITEMS, 0.5), (ITEMS, USERS, 0.77))
    ]
    starts, users = draw_graph(*degrees, (USERS, ITEMS), seed)
    factors, probability = like_probabilities(factors, starts, users, LIKES)
    liked = draw_likes(starts, users, probability, seed)
    ends = np.concatenate([[0], np.cumsum(liked)])[starts]
    indptr, indices = transpose(ends, users[liked], USERS)
    likes = csr_matrix((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(USERS, ITEMS))
    truth = expit(factors.users @ factors.items.T + factors.item_bias) * np.diff(starts)
    return likes, features, truth.astype(np.float32)


def draw_shop(generator: np.random.Generator) -> tuple[pl.DataFrame, dict[str, str]]:
    """Draw a category, up to three brands and a price for each item."""
    brands = [
        [f"b{brand}" for brand in generator.choice(40, size, replace=False)] for size in generator.integers(1, 4, ITEMS)
    ]
    categories = [f"c{number}" for number in generator.integers(0, 25, ITEMS)]
    frame = pl.DataFrame({"category": categories, "brands": brands, "price": generator.lognormal(3, 1, ITEMS)})
    return frame.with_columns(pl.col("price").log()), {
        "category": "category",
        "brands": "categories",
        "price": "number",
    }


def draw_texts(generator: np.random.Generator) -> tuple[pl.DataFrame, dict[str, str]]:
    """Draw a text of four to ten of 200 words for each item."""
    texts = [
        " ".join(f"w{word}" for word in generator.integers(0, 200, size)) for size in generator.integers(4, 11, ITEMS)
    ]
    return pl.DataFrame({"text": texts}), {"text": "text"}


def load_films(folder: Path) -> Log:
    """Read the ratings of 4 and more, and the genres and years."""
    ratings = pl.read_csv(folder / "ratings.csv").filter(pl.col("rating") >= 4).select("userId", "movieId")
    films = pl.read_csv(folder / "movies.csv").select(
        "movieId",
        pl.col("genres").str.split("|"),
        year=pl.col("title").str.extract(r"\((\d{4})\)\s*$").cast(pl.Float64),
    )
    # Ids follow age and popularity, by which ties must not be broken.
    ids = ratings.select("movieId").unique().sort("movieId").sample(fraction=1, shuffle=True, seed=0)
    films = ids.join(films, on="movieId", how="left", maintain_order="left")
    features = FeatureEncoder.fit(films, {"genres": "categories", "year": "number"}).encode(films)
    column_of_id = {name: column for column, name in enumerate(ids["movieId"])}
    users = np.unique(ratings["userId"].to_numpy(), return_inverse=True)[1]
    columns = np.array([column_of_id[name] for name in ratings["movieId"]])
    likes = csr_matrix((np.ones(len(users), dtype=np.float32), (users, columns)))
    return likes, features, None


def hold_out(likes: csr_matrix, seed: int) -> tuple[csr_matrix, csr_matrix, np.ndarray]:
    """Draw new items and held-out edges; returns the training edges, the targets, and the new columns."""
    generator, (users, items) = np.random.default_rng([seed, 1]), likes.shape
    is_new = generator.random(items) < HELD_OUT_SHARE
    held_out = is_new[likes.indices] | (generator.random(likes.nnz) < HELD_OUT_SHARE)
    rows = np.repeat(np.arange(users), np.diff(likes.indptr))
    parts = []
    for chosen in (~held_out, held_out & np.isin(rows, rows[~held_out])):
        part = csr_matrix((likes.data[chosen], (rows[chosen], likes.indices[chosen])), shape=likes.shape)
        part.sort_indices()
        parts.append(part)
    return *parts, np.flatnonzero(is_new)


def rank_items(scores: np.ndarray, train: csr_matrix, targets: csr_matrix, new: np.ndarray) -> dict[str, np.ndarray]:
    """Return nDCG@100 of each user over new and over known items; NaN for a user without such a target."""
    scores = np.ascontiguousarray(scores, dtype=np.float32)
    rows, ranks = rank_known_items(scores, train, targets, new, 0)
    known = np.full(len(scores), np.nan)
    known[rows] = compute_user_metrics(ranks)["ndcg@100"]
    return {"new": rank_new_items(scores, targets, new)["ndcg@100_new_items"], "known": known}


def build_scorers(
    train: csr_matrix,
    features: csr_matrix,
    truth: np.ndarray | None,
    irspack: tuple[int, float, float] | None,
    seed: int,
    threads: int,
) -> Iterator[tuple[str, Scorer]]:
    """Yield the rows of the table by name; `irspack` has its settings, if it is installed."""
    rows = np.arange(train.shape[0])
    for item_features, kinds in (
        (features, (*MODELS_WITH_ATTRIBUTES, *FALLBACK)),
        (None, (*MODELS_WITH_ATTRIBUTES[1:], *FALLBACK)),
    ):
        for name, score in kinds:
            model = MODELS[name](seed=seed, threads=threads).fit(train, FitOptions(item_features=item_features))
            label = f"{name} by attributes" if item_features is not None else name
            yield label, lambda model=model, score=score: model.scores(train, users=rows, score=score)
    if irspack is not None:
        yield "irspack's iALS by attributes", lambda: fit_irspack(train, features, seed, threads, *irspack)
    if truth is not None:
        yield "truth", lambda: truth


def fit_irspack(
    train: csr_matrix, features: csr_matrix, seed: int, threads: int, factors: int, reg: float, penalty: float
) -> np.ndarray:
    """Return the scores of irspack's feature-aware iALS, of items without an edge by their features."""
    from irspack import IALSRecommender

    model = IALSRecommender(
        train,
        n_components=factors,
        alpha0=12 * train.nnz / np.prod(train.shape),  # as wmf's default, for one range of `reg`
        reg=reg,
        n_threads=threads,
        random_seed=seed,
        item_features=features,
        lambda_item_feature=penalty,
    )
    model.start_learning()
    for _ in range(model.train_epochs):
        model.run_epoch()
    items, without = np.array(model.get_item_embedding()), np.bincount(train.indices, minlength=train.shape[1]) == 0
    items[without] = model.compute_item_embedding_from_features(features[without])
    return model.get_user_embedding() @ items.T


def choose_irspack(train: csr_matrix, features: csr_matrix, seed: int, threads: int) -> tuple[int, float, float]:
    """Choose factors, regularization and penalty by the sum of both metrics on items drawn from the training edges."""
    earlier, targets, new = hold_out(train, seed + 1000)
    known = np.flatnonzero(np.bincount(train.indices, minlength=train.shape[1]))
    new = np.intersect1d(new, known)
    targets = csr_matrix(targets)

    def sum_metrics(settings: tuple[int, float, float]) -> float:
        ndcg = rank_items(fit_irspack(earlier, features, seed, threads, *settings), earlier, targets, new)
        return sum(float(np.nanmean(ndcg[metric])) for metric in METRICS)

    return max(IRSPACK_GRID, key=sum_metrics)


def average_by_user(draws: list[np.ndarray]) -> np.ndarray:
    """Return the mean over draws of each user; NaN for a user without a value in any."""
    values = np.stack(draws)
    counts = np.count_nonzero(~np.isnan(values), axis=0)
    return np.where(counts > 0, np.nansum(values, axis=0) / np.maximum(counts, 1), np.nan)


def print_table(name: str, logs: list[Log], threads: int) -> None:
    """Print a log's table in Markdown; the users of all draws are pooled."""
    ndcg: dict[str, dict[str, list[np.ndarray]]] = {}
    irspack = None
    for seed, (likes, features, truth) in enumerate(logs, 1):
        train, targets, new = hold_out(likes, seed)
        if seed == 1 and importlib.util.find_spec("irspack"):
            irspack = choose_irspack(train, features, seed, threads)
        for row, scorer in build_scorers(train, features, truth, irspack, seed, threads):
            of_row = ndcg.setdefault(row, {metric: [] for metric in METRICS})
            for metric, values in rank_items(scorer(), train, targets, new).items():
                of_row[metric].append(values)
    likes = logs[0][0]
    print(f"\n{name}: {likes.shape[0]:,} users, {likes.shape[1]:,} items, {likes.nnz:,} likes, {len(logs)} draws")
    print(f"irspack's factors, reg and lambda_item_feature: {irspack}\n")
    print("| row | new items | wmf minus this | random_graph minus this | known items | wmf minus this |")
    print("|---|---|---|---|---|---|", flush=True)
    pool = average_by_user if all(log is logs[0] for log in logs) else np.concatenate
    pooled = {row: {metric: pool(of[metric]) for metric in METRICS} for row, of in ndcg.items()}
    best = {model: pooled[f"{model} by attributes"] for model in ("wmf", "random_graph")}
    for row, of in pooled.items():
        cells = [row]
        for metric, models in (("new", ("wmf", "random_graph")), ("known", ("wmf",))):
            has_value = metric == "known" or "by attributes" in row or row == "truth"
            mean = mean_and_error(of[metric])
            cells.append(f"{mean.value:.4f} ± {mean.standard_error:.4f}" if has_value else "")
            for model in models:
                gain = compare_paired(best[model][metric], of[metric])
                same = row == f"{model} by attributes"
                cells.append(f"{gain.difference:+.4f} ± {gain.standard_error:.4f}" if has_value and not same else "")
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="the folder of the logs' folders; needed for films")
    parser.add_argument("--logs", nargs="+", choices=["shop", "words", "films"], default=["shop", "words"])
    parser.add_argument("--seeds", type=int, default=3, help="draws of a generated log, and of new items")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if "films" in options.logs and options.root is None:
        parser.error("films needs --root")
    for name in options.logs:
        seeds = range(1, options.seeds + 1)
        if name == "films":
            logs = [load_films(options.root / "ml-latest-small")] * options.seeds
        else:
            logs = [generate_log(name, seed) for seed in seeds]
        print_table(name, logs, options.threads)


if __name__ == "__main__":
    main()
