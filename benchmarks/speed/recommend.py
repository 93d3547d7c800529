"""Measure one recommendation from the published model, and lists of 1,024 users, beside libraries and BLAS.

    python -m benchmarks.speed.recommend
    python -m benchmarks.speed.recommend --items 41000 --models wmf,slim --requests 500
    python -m benchmarks.speed.recommend --items 195795 --users 166666 --likes 11 --models graph_filter,paired_symbols

Logs are drawn (popularity by Zipf's law, 30 likes of each of 4,000 users) and published with the models named. Each
request is the history of another user, for 20 items, on one thread. `recommend` is the whole answer, a Polars frame
with titles and reasons; `scores alone` is its model. `together` is a block of users of the log, by all scores and, on a
large catalogue, by tiles of items as publication makes lists; both must give the same ids and bits. `exact product` is
a vector of 64 factors times all item factors in BLAS, and the best 20 of the result. The row of implicit is ALS with 64
factors, a user's computed from the history (`recalculate_user`); that of kindling-rec its engine with its defaults, for
a user of the log. A library that is not installed is left out.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from benchmarks.speed.logs import draw_equal_users
from benchmarks.speed.timing import print_percentiles
from oneclass.flows import published
from oneclass.models.base import Model
from oneclass.models.registry import MODELS
from oneclass.tasks.stores import checksums, publications, published_model
from oneclass.tasks.stores.home import Home

LIST_LENGTH, FACTORS, USERS, LIKES = 20, 64, 4000, 30
USERS_TOGETHER, USERS_OF_PRODUCT = 1024, 64
Request = Callable[[int], object]


def draw_log(items: int, seed: int = 0, *, users: int = USERS, likes: int = LIKES) -> csr_matrix:
    """Draw a (users, items) log with popularities by Zipf's law."""
    return draw_equal_users(users, items, likes, seed=seed, offset=1.0)


def publish_model(home: Home, name: str, log: csr_matrix, run_id: str = "run") -> None:
    """Fit a model on a log and publish it as a run does, without tables."""
    model = MODELS[name](seed=0, threads=1).fit(log)
    fit, matrices = (home.folder / f"{kind}-{run_id}" for kind in ("fit", "matrices"))
    for folder in (fit, matrices):
        folder.mkdir(parents=True)
    model.save(fit)
    for file, array in zip(published_model.MATRIX_FILES, (log.indptr, log.indices, log.data), strict=True):
        np.save(matrices / file, array)
    ids = [f"sku-{column}" for column in range(log.shape[1])]
    publication = publications.create_publication(home, run_id)
    published_model.write_published_model(
        publication,
        recommends={"model": name, "score": model.score_names[-1], "digest": "drawn"},
        fit=fit,
        matrices=matrices,
        items=pl.DataFrame({"item_id": ids, "title": ids, "users": model.item_degrees.astype(np.int32)}),
        users=pl.DataFrame({"user_id": [f"u{row}" for row in range(log.shape[0])]}),
        attributes={},
    )
    facts = {"run_id": run_id, "published_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    checksums.write_manifest(publication, published_model.MANIFEST_FILE, facts)
    publications.switch_link(home, publication)


def report_answers(home: Home, requests: int) -> None:
    """Print the times of answers from the published model."""
    began = time.perf_counter()
    shop = published.load(home.root, home.dataset)
    loading = time.perf_counter() - began
    print(f"{shop.model}/{shop.score}, {len(shop.items):,} items, {len(shop.users):,} users; loaded in {loading:.3f} s")
    users = shop.users["user_id"].to_list()
    histories = [shop.history(users[row % len(users)]) for row in range(requests)]
    matrix = published_model.load_published_model(home).histories
    rows, model = [matrix[[row]] for row in range(min(requests, len(users)))], shop.fitted
    asks: dict[str, Request] = {
        "recommend(history)": lambda number: shop.recommend(histories[number % requests], LIST_LENGTH),
        "recommend_for(user)": lambda number: shop.recommend_for(users[number % len(users)], LIST_LENGTH),
        "scores alone": lambda number: model.recommend(rows[number % len(rows)], LIST_LENGTH, score=shop.score),
    }
    for name, ask in asks.items():
        print_percentiles(name, ask, requests)
    report_blocks(model, shop.score, matrix[:USERS_TOGETHER])


def report_blocks(model: Model, score: str, histories: csr_matrix) -> None:
    """Print the CPU time of the lists of a block of users, by all scores and, if the model can, by tiles of items."""
    users, excluded = np.arange(histories.shape[0], dtype=np.int32), (histories.indptr, histories.indices)
    blocks = [users[start : start + model.users_at_once] for start in range(0, len(users), model.users_at_once)]

    def list_by_all_scores() -> tuple[np.ndarray, ...]:
        lists = []
        for block in blocks:
            scores = model.scores(histories[block], users=block, score=score)
            lists.append(model.select_best(scores, histories[block], LIST_LENGTH, exclude_seen=True))
        return tuple(map(np.concatenate, zip(*lists, strict=True)))

    def list_by_tiles() -> tuple[np.ndarray, ...] | None:
        return model.find_best_items(histories, LIST_LENGTH, excluded, users=users, score=score)

    expected = list_by_all_scores()
    for name, make in (("all scores", list_by_all_scores), ("tiles", list_by_tiles)):
        if (lists := make()) is None:
            continue
        np.testing.assert_equal(lists, expected)
        seconds = []
        for _ in range(3):
            began = time.thread_time()
            make()
            seconds.append(time.thread_time() - began)
        print(f"  {len(users):,} users together, {name:15} CPU {min(seconds) / len(users) * 1e3:8.3f} ms a user")


def report_peers(log: csr_matrix, requests: int) -> None:
    """Print the times of an exact product in BLAS and of other libraries on a log of the same size."""
    items, users, block = (
        np.random.default_rng(seed).normal(size=(count, FACTORS)).astype(np.float32)
        for seed, count in enumerate((log.shape[1], requests, USERS_OF_PRODUCT))
    )

    def multiply_exactly(number: int) -> np.ndarray:
        scores = items @ users[number % requests]
        best = np.argpartition(-scores, LIST_LENGTH)[:LIST_LENGTH]
        return best[np.argsort(-scores[best])]

    print_percentiles(f"exact product, {FACTORS} factors", multiply_exactly, requests)
    began = time.thread_time()
    np.argpartition(-(block @ items.T), LIST_LENGTH, axis=1)
    cpu = (time.thread_time() - began) / len(block) * 1e3
    print(f"  {len(block)} users together, exact product   CPU {cpu:8.3f} ms a user")
    for library, (name, build) in PEERS.items():
        if importlib.util.find_spec(library):
            print_percentiles(name, build(log), requests)
        else:
            print(f"  {name}: left out, {library} is not installed")


def fit_implicit(log: csr_matrix) -> Request:
    """Fit implicit's ALS; returns a request by number."""
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(factors=FACTORS, iterations=1, num_threads=1)
    model.fit(log, show_progress=False)
    return lambda number: model.recommend(
        number % log.shape[0], log[number % log.shape[0]], N=LIST_LENGTH, recalculate_user=True
    )


def fit_kindling(log: csr_matrix) -> Request:
    """Fit kindling-rec's engine; returns a request by number."""
    import pandas as pd
    from kindling import Engine

    edges = log.tocoo()
    engine = Engine().fit(pd.DataFrame({"entity_id": edges.row, "item_id": edges.col}))
    return lambda number: engine.recommend(number % log.shape[0], LIST_LENGTH)


PEERS = {
    "implicit": ("implicit, ALS, recalculate_user", fit_implicit),
    "kindling": ("kindling-rec, a user of the log", fit_kindling),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[3500, 41000])
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--likes", type=int, default=LIKES, help="of a user")
    parser.add_argument("--models", default="popularity,wmf,slim,random_graph")
    parser.add_argument("--requests", type=int, default=1000)
    options = parser.parse_args()
    with threadpool_limits(1, user_api="blas"):
        for items in options.items:
            log = draw_log(items, users=options.users, likes=options.likes)
            for name in options.models.split(","):
                with TemporaryDirectory() as folder:
                    home = Home(Path(folder), "drawn")
                    publish_model(home, name, log)
                    report_answers(home, options.requests)
            print(f"peers, {items:,} items")
            report_peers(log, options.requests)


if __name__ == "__main__":
    main()
