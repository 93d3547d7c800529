"""One recommendation from the published model, and lists of 1,024 users, beside implicit and an exact matrix product.

python -m benchmarks.speed.recommend
python -m benchmarks.speed.recommend --items 41000 --models wmf,slim --requests 500
python -m benchmarks.speed.recommend --items 195795 --users 166666 --likes 11 --models graph_filter,paired_symbols
python -m benchmarks.speed.recommend --home var --dataset ml-1m

By default on logs drawn here (popularity as in Zipf's law, 30 likes of each of 4,000 users), published with the models
named; else on what a home has published. Each request is the history of another user, for 20 items, on one thread.
`recommend` is the whole answer, a Polars frame with titles and reasons; `scores alone` is its model without that.
`together` is a block of users of the log, by all scores and, on a large catalogue, as nights make lists, with the same
ids and bits. `exact product` is what any model of 64 factors needs: a vector times all item factors in BLAS, and the
best 20 of the result. implicit's row is its ALS model of 64 factors with a user's factors computed from the history
(`recalculate_user`), kindling-rec's is its engine with its defaults, for a user of the log; each is left out, with a
word, where it is not installed.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from oneclass.flows import published
from oneclass.models.base import Model
from oneclass.models.registry import MODELS
from oneclass.tasks.stores import checksums, publications, published_model
from oneclass.tasks.stores.home import Home

N, FACTORS, USERS, LIKES = 20, 64, 4000, 30
BLOCK = 1024  # users whose lists are made together
WARM = 10  # requests that are not counted


def drawn(items: int, seed: int = 0, *, users: int = USERS, likes: int = LIKES) -> csr_matrix:
    """A (users, items) log with long-tailed popularity."""
    generator = np.random.default_rng(seed)
    share = 1 / np.arange(1, items + 1) ** 0.8
    columns = generator.choice(items, size=users * likes, p=share / share.sum())
    rows = np.repeat(np.arange(users), likes)
    edges = np.unique(np.stack([rows, columns]), axis=1)
    log = csr_matrix((np.ones(edges.shape[1], np.float32), (edges[0], edges[1])), shape=(users, items))
    log.sort_indices()
    return log


def publish(home: Home, model: str, log: csr_matrix, run_id: str = "run") -> None:
    """A publication of a model fitted on a log, as a run leaves it, less its tables."""
    fitted = MODELS[model](seed=0, threads=1).fit(log)
    fit, matrices = (home.folder / f"{what}-{run_id}" for what in ("fit", "matrices"))
    for folder in (fit, matrices):
        folder.mkdir(parents=True)
    fitted.save(fit)
    for name, array in zip(published_model.MATRIX_FILES, (log.indptr, log.indices, log.data), strict=True):
        np.save(matrices / name, array)
    ids = [f"sku-{column}" for column in range(log.shape[1])]
    publication = publications.create_publication(home, run_id)
    published_model.write_published_model(
        publication,
        recommends={"model": model, "score": fitted.score_names[-1], "digest": "drawn"},
        fit=fit,
        matrices=matrices,
        items=pl.DataFrame({"item_id": ids, "title": ids, "users": fitted.item_degrees.astype(np.int32)}),
        users=pl.DataFrame({"user_id": [f"u{row}" for row in range(log.shape[0])]}),
        attributes={},
    )
    facts = {"run_id": run_id, "published_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    checksums.write_manifest(publication, published_model.MANIFEST_FILE, facts)
    publications.switch_link(home, publication)


def timed(name: str, ask: Callable[[int], object], requests: int) -> None:
    """Print p50 and p99 of a request, and of its processor time, in milliseconds; WARM requests go before.

    On a machine that is busy with other things the two differ by the time that a request waits for a core.
    """
    took = np.empty((WARM + requests, 2))
    for number in range(-WARM, requests):
        began = time.perf_counter(), time.thread_time()
        ask(number)
        took[WARM + number] = time.perf_counter() - began[0], time.thread_time() - began[1]
    (p50, cpu50), (p99, cpu99) = np.percentile(took[WARM:], [50, 99], axis=0) * 1e3
    print(f"  {name:34} p50 {p50:8.3f}   p99 {p99:8.3f}   processor {cpu50:8.3f} {cpu99:8.3f} ms", flush=True)


def measure(home: Path, dataset: str, requests: int) -> None:
    began = time.perf_counter()
    shop = published.load(home, dataset)
    took = time.perf_counter() - began
    print(f"{shop.model}/{shop.score}, {len(shop.items):,} items, {len(shop.users):,} users; loaded in {took:.3f} s")
    users = shop.users["user_id"].to_list()
    histories = [shop.history(users[row % len(users)]) for row in range(requests)]
    matrix = published_model.load_published_model(Home(home, dataset)).histories
    rows, fitted = [matrix[[row]] for row in range(min(requests, len(users)))], shop.fitted
    timed("recommend(history)", lambda number: shop.recommend(histories[number], N), requests)
    timed("recommend_for(user)", lambda number: shop.recommend_for(users[number % len(users)], N), requests)
    timed("scores alone", lambda number: fitted.recommend(rows[number % len(rows)], N, score=shop.score), requests)
    together(fitted, shop.score, matrix[:BLOCK])


def together(model: Model, score: str, histories: csr_matrix) -> None:
    """Print the processor time of the lists of a block of users, without scoring all items if the model can."""
    users, excluded = np.arange(histories.shape[0], dtype=np.int32), (histories.indptr, histories.indices)
    blocks = [users[start : start + model.users_at_once] for start in range(0, len(users), model.users_at_once)]

    def by_all_scores() -> tuple[np.ndarray, ...]:
        lists = []
        for block in blocks:
            scores = model.scores(histories[block], users=block, score=score)
            lists.append(model.select_best(scores, histories[block], N, exclude_seen=True))
        return tuple(map(np.concatenate, zip(*lists, strict=True)))

    def by_tiles() -> tuple[np.ndarray, ...] | None:
        return model.find_best_items(histories, N, excluded, users=users, score=score)

    expected, found = by_all_scores(), by_tiles()
    for name, lists, make in (("all scores", expected, by_all_scores), ("tiles", found, by_tiles)):
        if lists is None:
            continue
        np.testing.assert_equal(lists, expected)
        took = []
        for _ in range(3):
            began = time.thread_time()
            make()
            took.append(time.thread_time() - began)
        print(f"  {len(users):,} users together, {name:15} processor {min(took) / len(users) * 1e3:8.3f} ms a user")


def beside(log: csr_matrix, requests: int) -> None:
    """What others need on a log of the same size."""
    vectors = np.random.default_rng(0).normal(size=(log.shape[1], FACTORS)).astype(np.float32)
    people = np.random.default_rng(1).normal(size=(requests, FACTORS)).astype(np.float32)

    def product(number: int) -> np.ndarray:
        scores = vectors @ people[number]
        best = np.argpartition(-scores, N)[:N]
        return best[np.argsort(-scores[best])]

    timed(f"exact product, {FACTORS} factors", product, requests)
    crowd, began = np.random.default_rng(2).normal(size=(64, FACTORS)).astype(np.float32), time.thread_time()
    np.argpartition(-(crowd @ vectors.T), N, axis=1)
    took = (time.thread_time() - began) / len(crowd) * 1e3
    print(f"  {len(crowd)} users together, exact product   processor {took:8.3f} ms a user")
    for name, ask in [*of_implicit(log), *of_kindling(log)]:
        timed(name, ask, requests)


def of_implicit(log: csr_matrix) -> Iterator[tuple[str, Callable[[int], object]]]:
    if importlib.util.find_spec("implicit") is None:
        print("  implicit is not installed: no row of it")
        return
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(factors=FACTORS, iterations=1, num_threads=1)
    model.fit(log, show_progress=False)
    yield (
        "implicit, ALS, recalculate_user",
        lambda number: model.recommend(number % log.shape[0], log[number % log.shape[0]], N=N, recalculate_user=True),
    )


def of_kindling(log: csr_matrix) -> Iterator[tuple[str, Callable[[int], object]]]:
    if importlib.util.find_spec("kindling") is None:
        print("  kindling-rec is not installed: no row of it")
        return
    import pandas as pd
    from kindling import Engine

    edges = log.tocoo()
    engine = Engine().fit(pd.DataFrame({"entity_id": edges.row, "item_id": edges.col}))
    yield "kindling-rec, a user of the log", lambda number: engine.recommend(number % log.shape[0], N)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.recommend", description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, nargs="+", default=[3500, 41000])
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--likes", type=int, default=LIKES, help="of a user")
    parser.add_argument("--models", default="popularity,wmf,slim,random_graph")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--dataset")
    given = parser.parse_args()
    with threadpool_limits(1, user_api="blas"):
        if given.home:
            measure(given.home, given.dataset, given.requests)
            return
        for items in given.items:
            log = drawn(items, users=given.users, likes=given.likes)
            for model in given.models.split(","):
                with TemporaryDirectory() as folder:
                    publish(Home(Path(folder), "drawn"), model, log)
                    measure(Path(folder), "drawn", given.requests)
            print(f"others, {items:,} items")
            beside(log, given.requests)


if __name__ == "__main__":
    main()
