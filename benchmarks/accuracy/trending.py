"""Planted trends in generated logs: how many the list `trending` finds, and how many of those that it names are none.

    python -m benchmarks.accuracy.trending [--logs 100] [--items 2000] [--days 200] [--window 7] [--share 0.05]

An item's likes are a Poisson process whose rate is its own popularity (Pareto) times what all items share: growth,
weeks and a holiday that ends in the window. Items enter at any time. In the window a share of the items has `ratio`
times its rate. The log goes through the published statements (`tasks.publish.lists`). Columns: the share of planted
trends that are found, by the number of likes that the item's past lets expect in the window, and the mean share of
wrong items among those that are named (0 where none is), ± one standard error. The test keeps the latter below 0.05.
"""

import argparse
import itertools

import duckdb
import numpy as np
import polars as pl

from oneclass import sql
from oneclass.models.evaluation.multiple_tests import ALPHA
from oneclass.tasks.publish import lists
from oneclass.tasks.publish.settings import PublishSettings

RATIOS = (1.0, 1.5, 2.0, 3.0, 5.0)
EXPECTED_LIKES = (1, 3, 10, 30, np.inf)
SECONDS_PER_DAY = 86_400


def draw_log(
    ratio: float, items: int, days: int, window: int, share: float, generator: np.random.Generator
) -> tuple[pl.DataFrame, np.ndarray, np.ndarray]:
    """Draw item and second of each like, each of another user; which items are planted; and their usual likes."""
    day = np.arange(days)
    activity = (
        np.exp(day / days) * np.where(day % 7 > 4, 1.5, 1) * np.where((day >= days - 12) & (day < days - 4), 2, 1)
    )
    first_day = np.where(generator.random(items) < 0.5, 0, generator.integers(0, days, items))
    popularity = 20 * (generator.pareto(1.3, items) + 0.2) / activity.sum()
    planted = generator.random(items) < share
    rates = popularity[:, None] * activity * (day >= first_day[:, None])
    usual = rates[:, days - window :].sum(axis=1)
    rates[:, days - window :] *= np.where(planted, ratio, 1)[:, None]
    item, on_day = np.nonzero(counts := generator.poisson(rates))
    item, on_day = (np.repeat(values, counts[item, on_day]) for values in (item, on_day))
    seconds = on_day * SECONDS_PER_DAY + generator.integers(0, SECONDS_PER_DAY, len(item))
    return pl.DataFrame({"item": item, "second": seconds}), planted, usual


def list_trends(log: pl.DataFrame, items: int, window: int) -> set[int]:
    """Return the items that the published list names."""
    with duckdb.connect() as connection:
        for statement in sql.schema():
            connection.execute(statement)
        connection.register("log", log)
        likes = "select row_number() over () as user, item, make_timestamp(second * 1000000) as time from log"
        connection.execute(
            f"insert into raw.events select 'u' || user, item::varchar, 1, time, 1, user, null from ({likes})"
        )
        connection.execute("insert into indexed.items select item, item::varchar from (select distinct item from log)")
        connection.execute(
            f"insert into indexed.interactions select user, item, 1, time, time, 1, user, null from ({likes})"
        )
        lists.store_lists(connection, PublishSettings(list_windows=[window], list_length=1000))
        found = connection.execute("select item_id from published.lists where list = 'trending'").fetchall()
    return {int(item) for (item,) in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=100, help="generated logs for each ratio")
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--days", type=int, default=200)
    parser.add_argument("--window", type=int, default=7, help="days")
    parser.add_argument("--share", type=float, default=0.05, help="of the items that are planted")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    bins = list(itertools.pairwise(EXPECTED_LIKES))
    heads = [f"{low} to {high}" if np.isfinite(high) else f"{low} or more" for low, high in bins]
    print(f"| ratio | {' | '.join(heads)} | named | wrong (at most {ALPHA}) |\n|---|{'---|' * (len(bins) + 2)}")
    for ratio in RATIOS:
        generator, wrong, named = np.random.default_rng(args.seed), [], 0
        hits, planted_counts = np.zeros(len(bins)), np.zeros(len(bins))
        for _ in range(args.logs):
            log, planted, usual = draw_log(ratio, args.items, args.days, args.window, args.share, generator)
            found = np.isin(np.arange(args.items), list(list_trends(log, args.items, args.window)))
            true = planted & (ratio > 1)
            for position, (low, high) in enumerate(bins):
                inside = true & (usual >= low) & (usual < high)
                hits[position] += np.count_nonzero(found & inside)
                planted_counts[position] += np.count_nonzero(inside)
            wrong.append(np.count_nonzero(found & ~true) / max(np.count_nonzero(found), 1))
            named += np.count_nonzero(found)
        power = [f"{hit / count:.2f}" if count else "" for hit, count in zip(hits, planted_counts, strict=True)]
        error = np.std(wrong, ddof=1) / np.sqrt(len(wrong))
        cells = [f"{ratio}", *power, f"{named / args.logs:.1f}", f"{np.mean(wrong):.3f} ± {error:.3f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
