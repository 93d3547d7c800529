"""What a search tries first, on logs that had no part in choosing it.

    python -m benchmarks.beginnings --root ../shared/data [--logs ml-100k yelp2018] [--models wmf slim] [--draws 40]

A run's own search (docs/tuning.md) tries the settings at the start, then what `elsewhere` in the model's settings has. For each
log, a sample of its users is drawn, and seeded draws of settings from what such a search may try are judged on it: by nDCG@100
of at most 400 validation users. The fields are fitted on the 8,000 items that have the most edges. One row a model, in shares of
the best that was tried on the log:

    default           the defaults
    elsewhere         the better of the defaults and what `elsewhere` has
    chosen on others  the better of the defaults and two draws, those that are best together with them on the other logs by
                      the mean share

`--jobs` processes make the fits side by side; the figures are the same.
"""

import argparse
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.transfer import FILES, TRIED, USERS, Log, drawn, measured, read
from models.catalogue import MODELS
from models.settings import ModelSettings
from tasks.tuning.before_fits import ITEMS

LOGS = [name for name in FILES if name != "ml-1m"]
CHOSEN = 2  # draws beside the default


def with_most_edges(log: Log, items: int) -> Log:
    """The log with so many of its items."""
    degrees = np.bincount(log.train.indices, minlength=log.train.shape[1])
    return log.of_items(np.sort(np.argsort(-degrees, kind="stable")[:items]))


def tried(kind: type[ModelSettings], draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """Draws of what a short search may try: settings that it leaves alone have the values of `elsewhere`."""
    rng, space = np.random.default_rng(seed), kind.search_space
    left_alone = {name for name, range_ in space.items() if range_.by_hand}
    beside = kind.elsewhere[0] if kind.elsewhere else {}
    fixed = {name: value for name, value in beside.items() if name not in space or name in left_alone}
    for _ in range(draws):
        yield {name: value for name, value in drawn(kind, rng).items() if name not in left_alone} | fixed


def begun(pool: Executor, model: str, log: Log, draws: int, seed: int, threads: int) -> list[Future]:
    """The fits of the default, of what `elsewhere` has, and of the draws."""
    kind = MODELS[model].Settings
    settings = [{}, *kind.elsewhere, *tried(kind, draws, seed)]
    return [pool.submit(measured, model, values, log, 1, threads) for values in settings]


def chosen(shares: np.ndarray, logs: Sequence[int]) -> list[int]:
    """The default, which comes first, and the CHOSEN draws that raise the mean over some logs most, one after the other.

    Args:
        shares: (tried, logs).
    """
    found = [0]
    for _ in range(CHOSEN):
        together = np.maximum(shares[found][:, logs].max(axis=0), shares[:, logs]).mean(axis=1)
        found.append(int(np.argmax(together)))
    return found


def rows(model: str, values: np.ndarray) -> Iterator[str]:
    """Rows of the table, of nDCG@100 (tried, logs)."""
    shares, count = values / values.max(axis=0), 1 + len(MODELS[model].Settings.elsewhere)
    draws = np.delete(shares, range(1, count), axis=0)
    every = range(shares.shape[1])
    others = [chosen(draws, [other for other in every if other != log]) for log in every]
    of_others = [draws[found, log].max() for log, found in zip(every, others, strict=True)]
    for what, figures in (
        ("default", shares[0]),
        ("elsewhere", shares[:count].max(axis=0)),
        ("chosen on others", of_others),
    ):
        yield f"| {model} | {what} | {' | '.join(f'{share:.3f}' for share in figures)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="the folder of the logs' folders")
    parser.add_argument("--logs", nargs="+", choices=FILES, default=LOGS, metavar="NAME")
    parser.add_argument("--models", nargs="+", choices=TRIED, default=list(TRIED), metavar="MODEL")
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--users", type=int, default=1500, help="most users that train")
    parser.add_argument("--sample", type=int, default=2, help="seed of the samples of users")
    parser.add_argument("--seed", type=int, default=77, help="of the draws of settings")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes that make the fits")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*still moving")
    print(f"| model | | {' | '.join(given.logs)} |\n{'|---' * (len(given.logs) + 2)}|", flush=True)
    whole = {name: read(name, given.root, given.threads) for name in given.logs}
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        for model in given.models:
            users = min(given.users, USERS.get(model, given.users))
            logs = [log.sample(users, 400, given.sample) for log in whole.values()]
            if MODELS[model].cost_is_of_items:
                logs = [with_most_edges(log, ITEMS) for log in logs]
            fits = [begun(pool, model, log, given.draws, given.seed, given.threads) for log in logs]
            found = [[(one.result()[0] or (0.0, 0.0))[0] for one in of_log] for of_log in fits]
            print(*rows(model, np.array(found).T), sep="\n", flush=True)


if __name__ == "__main__":
    main()
