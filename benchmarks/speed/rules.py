"""Measure how much ten rules add to a publication, and p50 and p99 of answers with a filter.

    python -m benchmarks.speed.rules [--items 41000] [--users 8000] [--model wmf] [--repeats 3] [--requests 500]

Draws a log (popularity by Zipf's law, 30 likes a user) with attributes of items and users, fits the model and
random_graph once, and publishes the model, with random_graph as companion as in a default night, with and without ten
rules in turn, contracts included. The shortest of the repeats counts; each publication makes its lists anew. Then asks
for 20 items for histories and for users of the log, with rules and a filter, new or repeated, on one thread. Prints
wall and CPU seconds, and the load of the machine.
"""

import argparse
import logging
import os
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from benchmarks.speed.timing import Timing, print_percentiles, time_call
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.publish.choice import ChosenModel
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.recommend import Recommender, load
from oneclass.tasks.rules.settings import DeclaredRules, Rules
from oneclass.tasks.split.stage import store_all_edges
from oneclass.tasks.stores.home import Home, Limits
from oneclass.tasks.train import train

LIKES = 30  # of a user
COMPANION = "random_graph"
GENRES = [f"genre {number}" for number in range(20)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=41_000)
    parser.add_argument("--users", type=int, default=8_000)
    parser.add_argument("--model", default="wmf", choices=MODELS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with TemporaryDirectory() as folder:
        home = Home(Path(folder), "drawn", Limits(threads=options.threads, memory=4 << 30))
        fill_home(home, options.items, options.users)
        matrices_digest = store_all_edges(home, order=False, timed=None)
        edges = {"protocol": "all_edges", "matrices_digest": matrices_digest}
        digests = {
            model: train(home, "fit", **edges, model=model, settings=MODELS[model].Settings(), seed=0).digest
            for model in (options.model, COMPANION)
        }
        timings: dict[bool, list[Timing]] = {False: [], True: []}
        for repeat in range(-1, options.repeats):  # the first compiles
            for with_rules, of_kind in timings.items():
                run = partial(
                    publish,
                    home,
                    f"{repeat} {with_rules}",
                    PublishSettings(),
                    choice=ChosenModel(options.model, "score"),
                    model_digest=digests[options.model],
                    companion=(COMPANION, digests[COMPANION]),
                    matrices_digest=matrices_digest,
                    declared=DeclaredRules(rules=build_rules(repeat)) if with_rules else DeclaredRules(),
                )
                of_kind.append(time_call(run))
        print(f"publishing {options.users:,} users, {options.items:,} items, {options.model}")
        for clock in ("wall", "cpu"):
            plain, ruled = (min(getattr(one, clock) for one in timings[kind][1:]) for kind in (False, True))
            print(f"{clock}: {plain:.2f} s, with ten rules {ruled:.2f} s, {100 * (ruled / plain - 1):+.1f} %")
        report_answers(load(home.root, "drawn"), options.requests)
    print(f"load {os.getloadavg()[0]:.1f}")


def fill_home(home: Home, items: int, users: int) -> None:
    """Draw a log and attributes into a home."""
    generator = np.random.default_rng(0)
    share = 1 / np.arange(1, items + 1) ** 0.8
    columns = generator.choice(items, size=users * LIKES, p=share / share.sum())
    columns[:items] = np.arange(items)  # every item has a like
    events = pl.DataFrame(
        {
            "user_id": [f"u{row}" for row in np.repeat(np.arange(users), LIKES)],
            "item_id": [f"sku-{column}" for column in columns],
            "event": np.where(generator.random(len(columns)) < 0.02, "return", "order"),
        }
    )
    folder = home.root / "tables"
    folder.mkdir(parents=True)
    pl.DataFrame(
        {
            "item_id": [f"sku-{column}" for column in range(items)],
            "stock": generator.integers(0, 5, items),
            "price": np.round(generator.lognormal(3, 1, items), 2),
            "margin": generator.random(items),
            "adult": generator.random(items) < 0.05,
            "genre": generator.choice(GENRES, items),
            "brand": [f"brand {number}" for number in generator.integers(0, 500, items)],
        }
    ).write_parquet(folder / "items.parquet")
    pl.DataFrame(
        {"user_id": [f"u{row}" for row in range(users)], "age": generator.integers(12, 80, users)}
    ).write_parquet(folder / "users.parquet")
    events.write_csv(folder / "log.csv")
    tables = {f"{side}s": {"file": str(folder / f"{side}s.parquet")} for side in ("item", "user")}
    dataset = Dataset(name="drawn", events={"order": 1, "return": 1}, **tables)
    ingest(home, dataset, [folder / "log.csv"], "run", IngestSettings())
    binarize(home, BinarizeSettings(), "run")


def build_rules(number: int) -> Rules:
    """Build ten rules; each number bans another item, so no list is reused."""
    return Rules(
        eligible="stock > 0 and (not adult or user.age >= 18)",
        boosts=[
            {"when": "margin > 0.5", "by": 0.1},
            {"when": "price < 10", "by": 0.05},
            {"when": "genre = 'genre 3'", "by": 0.2},
            {"when": "history.users < 5", "by": 0.02},
        ],
        pinned=["sku-7", "sku-11"],
        banned=[f"sku-{100 + number}"],
        max_per_category={"genre": 5, "brand": 3},
        not_event=["return"],
    )


def report_answers(shop: Recommender, requests: int) -> None:
    """Print p50 and p99 of answers with rules and filters."""
    users, items = shop.users["user_id"].to_list(), shop.items["item_id"].to_list()
    generator = np.random.default_rng(1)
    histories = [[items[column] for column in generator.integers(0, len(items), LIKES)] for _ in range(requests)]
    asks = {
        "a history, rules": lambda number: shop.recommend(histories[number]),
        "a history, rules and a filter not asked before": lambda number: shop.recommend(
            histories[number], where=f"genre = 'genre 1' and price < {40 + number}"
        ),
        "a history, rules and a filter asked before": lambda number: shop.recommend(
            histories[number], where="genre = 'genre 1' and price < 20"
        ),
        "a user, rules": lambda number: shop.recommend_for(users[number % len(users)]),
        "a user, rules and a filter not asked before": lambda number: shop.recommend_for(
            users[number], where=f"margin > 0.2 and price < {40 + number}.5"
        ),
    }
    for name, ask in asks.items():
        print_percentiles(name, ask, requests)


if __name__ == "__main__":
    main()
