"""Defaults on a log that nobody tuned for, against a small search of the same model's settings.

    python -m benchmarks.transfer --root ../shared/data [--logs ml-100k yelp2018] [--models wmf slim] [--draws 12]
    python -m benchmarks.transfer --root ../shared/data --zeros --logs lastfm-hetrec2011 citeulike-a yelp2018

A log lies in ROOT/NAME, as the file that `python -m flows.backfill` reads; of a log that comes with a split, its train
part alone is read. Users are held out as `strong_generalization` holds them out, and the validation users judge. At
most so many of the others train, drawn by the seed (`--users`, and USERS for models that want fewer). One row a log and
model, nDCG@100 and S of the validation users:

    default  the defaults
    search   what a run finds by itself before the fits (train.tune), judged by the same users
    best     by nDCG@100, of the two and of `--draws` seeded draws from the whole search space, `r` and the numbers of
             factors and passes among it; factors are 16, 32, 64 or 96 where the space has a range, for each number is
             compiled apart; the density of mrf_sparse stays at its rule's, for the cost of a fit grows with its cube
    of best  nDCG@100 of the default, and of the search, over the best
    CPU s    of all fits of the row, the search's among them, with compiling

`--jobs` processes make the fits side by side; the figures are the same.

`--zeros` shows what `models.numerics.no_evidence` changes, with the old defaults: the share of scores that are exactly
zero, and nDCG@100 and S with these left at zero, in the order of the item indices; at zero, by popularity, above
negative sums; and by popularity below all others, as the models have it.
"""

import argparse
import math
import tempfile
import time
import warnings
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.bayesian_models import prepared
from flows.parameters import Backfill
from flows.settings import resolve
from models.base import Model
from models.catalogue import MODELS
from models.evaluation.metrics import user_metrics
from models.evaluation.ranking import target_ranks
from models.numerics.sparse_products import sparse_times
from models.search_space import Choice, Multiple, Range, Span
from models.settings import ModelSettings
from tasks.stores import matrices
from tasks.stores.home import Home, Limits
from tasks.tuning import before_fits, trial_task

FILES = {  # log: its data set's name and its file
    "ml-100k": ("ml-100k", "u.data"),
    "ml-latest-small": ("ml-latest-small", "ratings.csv"),
    "lastfm-hetrec2011": ("lastfm", "user_artists.dat"),
    "citeulike-a": ("citeulike-a", "users.dat"),
    "ml-1m": ("ml-1m", "ratings.csv"),
    "gowalla": ("gowalla", "train.txt"),
    "yelp2018": ("yelp2018", "train.txt"),
}
OLD = {  # defaults until they were set from the log, for `--zeros`
    "wmf": {
        "unobserved_weight": 0.2, "regularization": 0.007, "user_weight_exponent": 0.0, "factors": 64, "iterations": 16,
    },
    "slim": {"l1": 5.0, "l2": 200.0, "alpha": 0.0, "user_weight_exponent": 0.0},
    "mrf_sparse": {"l2": 1.0, "alpha": 0.75, "user_weight_exponent": 0.0, "centred": True, "density": 0.005,
                   "r": 0.0},
    "mrf_dense": {"l2": 6.0, "alpha": 0.75, "user_weight_exponent": 0.0, "centred": True},
}  # fmt: skip
TRIED = ("wmf", "slim", "mrf_dense", "mrf_sparse", "graph_filter", "bpr_uniform", "random_graph", "paired_symbols")
USERS = {"slim": 1500, "mrf_sparse": 1000, "mrf_dense": 1000}
FACTORS = (16, 32, 64, 96)
MOST_ITEMS = 16_000  # of an items x items array: a log with more, after the draw of users, is left out


@dataclass(frozen=True)
class Log:
    """Training edges, and the validation users' histories and targets, each (users, items)."""

    name: str
    train: csr_matrix
    histories: csr_matrix
    targets: csr_matrix

    def sample(self, users: int, judges: int, seed: int) -> "Log":
        """At most so many users, and the items that these like; validation users without a target left are dropped."""
        rng = np.random.default_rng(seed)
        train = self.train[_drawn(rng, np.arange(self.train.shape[0]), users)]
        judges_ = _drawn(rng, np.flatnonzero(np.diff(self.targets.indptr)), judges)
        known = np.flatnonzero(np.bincount(train.indices, minlength=train.shape[1]))
        return Log(self.name, train, self.histories[judges_], self.targets[judges_]).of_items(known)

    def of_items(self, known: np.ndarray) -> "Log":
        """These columns alone; validation users without a target left are dropped."""
        train, histories, targets = (part[:, known].tocsr() for part in (self.train, self.histories, self.targets))
        found = np.flatnonzero(np.diff(targets.indptr))
        return Log(self.name, train, histories[found], targets[found])

    def judged(self, scores: np.ndarray) -> tuple[float, float]:
        """nDCG@100 and S."""
        found = user_metrics(target_ranks(scores, self.histories, self.targets))
        return float(found["ndcg@100"].mean()), float(found["mean_rank"].mean())


def _drawn(rng: np.random.Generator, rows: np.ndarray, most: int) -> np.ndarray:
    return np.sort(rng.choice(rows, most, replace=False)) if most < len(rows) else rows


def read(name: str, root: Path, threads: int) -> Log:
    """The log by the pipeline's own stages."""
    dataset, file = FILES[name]
    with tempfile.TemporaryDirectory() as folder:
        parameters = Backfill(
            dataset=dataset,
            home=folder,
            source=[str(root / name / file)],
            seed=1,
            protocols=["strong_generalization"],
            threads=threads,
        )
        split = prepared(resolve(parameters))["strong_generalization"]
        part = split.parts["validation"]
        return Log(name, split.train[:], part.histories[:], part.targets[:])


def drawn(kind: type[ModelSettings], rng: np.random.Generator) -> dict[str, Any]:
    """One draw from a search space, each setting by itself."""
    values = {name: _value(range_, rng) for name, range_ in kind.search_space.items() if name != "density"}
    if isinstance(kind.search_space.get("factors"), Span):
        values["factors"] = int(rng.choice(FACTORS))
    return values


def _value(range_: Range, rng: np.random.Generator) -> Any:
    if isinstance(range_, Choice):
        return range_.values[rng.integers(len(range_.values))]
    range_ = range_.span if isinstance(range_, Multiple) else range_
    low, high = (math.log(end) if range_.log else end for end in (range_.low, range_.high))
    value = rng.uniform(low, high)
    value = math.exp(value) if range_.log else value
    return round(value) if isinstance(range_.low, int) and isinstance(range_.high, int) else value


def fitted(name: str, settings: ModelSettings, log: Log, threads: int) -> Model:
    return MODELS[name](settings, seed=1, threads=threads).fit(log.train)


def searched(name: str, log: Log, seed: int, threads: int) -> ModelSettings:
    """What a run finds by itself."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder), "log", Limits(threads=threads))
        users, items = (np.arange(count, dtype=np.int32) for count in log.train.shape)
        judges = np.arange(log.targets.shape[0], dtype=np.int32)
        parts = {"validation": matrices.Part(log.histories, log.targets, judges)}
        split = matrices.SplitMatrices("strong_generalization", log.train, users, items, parts)
        digest = matrices.write(home, split)
        of_run = before_fits.Log(home, split.protocol, digest, log.train, date.today(), seed, trial_task.fn)
        settings = MODELS[name].Settings()
        return before_fits.settle(of_run, name, settings, before_fits.Wanted("always"))().settings


@dataclass(frozen=True)
class Row:
    """A row of the table whose fits are being made.

    Attributes:
        found: of the default, the search and each draw, (nDCG@100, S) and CPU seconds.
    """

    log: Log
    model: str
    found: list[Future]

    def __str__(self) -> str:
        values, seconds = zip(*(one.result() for one in self.found))
        best = max(value for value in values if value)
        cells = [f"{ndcg:.4f} / {rank:.4f}" for ndcg, rank in (*values[:2], best)]
        shares = " / ".join(f"{ndcg / best[0]:.3f}" for ndcg, _ in values[:2])
        return f"| {_shape(self.log)} | {self.model} | {' | '.join(cells)} | {shares} | {sum(seconds):.0f} |"


def begun(pool: Executor, pairs: list[tuple[str, Log]], draws: int, seed: int, threads: int) -> list[Row]:
    """Begin the fits of the rows; first the searches, which take longest."""
    rows = [Row(log, name, [pool.submit(measured, name, None, log, seed, threads)]) for name, log in pairs]
    for row in rows:
        rng, kind = np.random.default_rng(seed), MODELS[row.model].Settings
        tried = [kind(), *(drawn(kind, rng) for _ in range(draws))]
        fits = [pool.submit(measured, row.model, one, row.log, seed, threads) for one in tried]
        row.found[:] = [fits[0], *row.found, *fits[1:]]
    return rows


def measured(
    name: str, settings: ModelSettings | dict[str, Any] | None, log: Log, seed: int, threads: int
) -> tuple[tuple[float, float] | None, float]:
    """`value` of settings, of values of the search space, or, for None, of what a run finds; and CPU seconds.

    The value is None where the model refuses a draw.
    """
    began = time.process_time()
    warnings.filterwarnings("ignore", message=".*still moving")
    try:
        if settings is None:
            settings = searched(name, log, seed, threads)
        elif isinstance(settings, dict):
            settings = MODELS[name].Settings().tried(settings, log.train)
        found = value(name, settings, log, threads)
    except ValueError:
        found = None
    return found, time.process_time() - began


def value(name: str, settings: ModelSettings, log: Log, threads: int) -> tuple[float, float]:
    """nDCG@100 and S of the better of the model's scores."""
    model = fitted(name, settings, log, threads)
    return max(log.judged(model.scores(log.histories, score=score)) for score in model.score_names)


def zeros(name: str, log: Log, threads: int) -> str:
    """A row of the table of `--zeros`."""
    model = fitted(name, MODELS[name].Settings(**OLD[name]), log, threads)
    sums = sparse_times(log.histories, model.weights)
    at_zero = np.where(sums == 0, model.item_degrees * np.float32(1e-36), sums)
    orders = sums, at_zero, model.scores(log.histories)
    cells = [f"{ndcg:.4f} / {rank:.4f}" for ndcg, rank in map(log.judged, orders)]
    return f"| {_shape(log)} | {name} | {np.mean(sums == 0):.3f} | {' | '.join(cells)} |"


def _shape(log: Log) -> str:
    users, items = log.train.shape
    return f"{log.name}, {users:,} x {items:,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="the folder of the logs' folders")
    parser.add_argument("--logs", nargs="+", choices=FILES, default=list(FILES), metavar="NAME")
    parser.add_argument("--models", nargs="+", choices=TRIED, default=list(TRIED), metavar="MODEL")
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--users", type=int, default=2500, help="most users that train")
    parser.add_argument("--judges", type=int, default=400, help="most validation users")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes that make the fits")
    parser.add_argument("--zeros", action="store_true", help="the order of candidates without evidence instead")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*still moving")
    head = (
        ["zero", "by index", "by popularity, at zero", "below"]
        if given.zeros
        else ["default", "search", "best", "of best", "CPU s"]
    )
    print(f"| log, users x items | model | {' | '.join(head)} |\n{'|---' * (len(head) + 2)}|")
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        pairs = []
        for name in given.logs:
            whole = read(name, given.root, given.threads)
            for model in given.models:
                log = whole.sample(min(given.users, USERS.get(model, given.users)), given.judges, given.seed)
                if model == "mrf_dense" and log.train.shape[1] > MOST_ITEMS:
                    continue
                if not given.zeros:
                    pairs.append((model, log))
                elif model in ("slim", "mrf_sparse"):
                    print(zeros(model, log, given.threads), flush=True)
        for row in begun(pool, pairs, given.draws, given.seed, given.threads):
            print(row, flush=True)


if __name__ == "__main__":
    main()
