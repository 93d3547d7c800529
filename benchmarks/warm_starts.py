"""Fits that begin at last night's: how much time they save, and whether they rank as a fit from nothing does.

    python -m benchmarks.warm_starts --dataset ml-1m --source ../shared/data/ml-1m/ratings.csv
    python -m benchmarks.warm_starts --dataset ml-100k --source ../shared/data/ml-100k/u.data --models wmf hpf --seeds 3
    python -m benchmarks.warm_starts --dataset demo --out table.md

The likes of a log lie in the order of their first times. The last share of them (`--share`, one in a hundred) is the new
night; ten such nights in a chain, each begun at the one before, show what repeated warm starts do. For each model and seed
there are made a fit from nothing on today's likes (cold), a fit on them that begins at a cold fit of yesterday's (warm),
and a fit on them at the end of the chain of ten nights (chain), with the settings of the data set's file.

All are judged on today's log. A fifth of the users, by the seed of the split, never train: nDCG@100 of a fifth of their
likes, given the others. A tenth are the validation users, for models that stop by them. Of every other user with
five likes or more one like is left out of every night: its mean rank S, by what the fit learned of the user. Both are of
the score that is best by nDCG@100 of the cold fit. A difference to the cold fit is paired, by user and seed; its standard
error is that of the users' means over the seeds, with the seeds' own: a fit by another seed, too, ranks otherwise. The
verdict is by the two figures after one night and after the chain: a difference may fall below zero by one standard error of
its own, or else, which the verdict says, by one standard error of the figure, as tables have it.

CPU seconds are of the process, in the fit alone, with kernels compiled before; so is the share of the cold fit's.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from flows.parameters import Backfill
from flows.settings import RunSettings, resolve
from models.base import Model
from models.catalogue import MODELS
from models.evaluation import metrics
from models.evaluation.ranking import target_ranks
from models.fitting import FitOptions, Start, ValidationUsers
from tasks.binarize import binarize
from tasks.demo.story import make_demo
from tasks.ingest import ingest
from tasks.stores import warehouse

NIGHTS, BLOCK, LEAST = 10, 500, 5
FIGURES = {"ndcg@100": "nDCG@100 of unseen users", "mean_rank": "S of left-out likes"}
WARM = [name for name in MODELS if name not in {"blend"} and MODELS[name].warm_startable]


@dataclass(frozen=True)
class Log:
    """A log in the order of time, cut for judging; users and items are numbered by their first likes.

    Attributes:
        users, items: int64 (likes,), of the likes that are trained on.
        shape: users and items of the whole log.
        unseen, validation: (histories, targets) of users who never train, (users, items) CSR each.
        left_out: int64 (rows,) and (rows,): users who train, and the like of each that does not.
    """

    users: np.ndarray
    items: np.ndarray
    shape: tuple[int, int]
    unseen: tuple[csr_matrix, csr_matrix]
    validation: tuple[csr_matrix, csr_matrix]
    left_out: tuple[np.ndarray, np.ndarray]

    def at(self, share: float) -> csr_matrix:
        """The training matrix of the first share of the likes; its rows and columns are the first of the whole log's."""
        count = round(share * len(self.users))
        return matrix(self.users[:count], self.items[:count])


@dataclass
class Found:
    """What was measured of one way to fit: one entry a seed, of `values` by score and figure, float64 (users,) each."""

    seconds: list[float] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    values: dict[tuple[str, str], list[np.ndarray]] = field(default_factory=dict)

    def mean(self, score: str, figure: str) -> metrics.Mean:
        """Over the users, of each user's mean over the seeds."""
        return metrics.mean(np.mean(self.values[score, figure], axis=0))

    def spread(self, score: str, figure: str) -> float:
        """Standard deviation over the seeds of the mean over the users."""
        of_seeds = [values.mean() for values in self.values[score, figure]]
        return float(np.std(of_seeds, ddof=1)) if len(of_seeds) > 1 else 0.0

    def less(self, other: "Found", score: str, figure: str) -> tuple[float, float]:
        """How much higher the figure is than by the other way, and the standard error, over users and seeds."""
        pairs = zip(self.values[score, figure], other.values[score, figure], strict=True)
        differences = Found(values={(score, figure): [own - its for own, its in pairs]})
        mean, seeds = differences.mean(score, figure), len(self.values[score, figure])
        return mean.value, float(np.hypot(mean.standard_error, differences.spread(score, figure) / np.sqrt(seeds)))


def matrix(users: np.ndarray, items: np.ndarray, shape: tuple[int, int] | None = None) -> csr_matrix:
    """CSR with sorted columns."""
    made = csr_matrix((np.ones(len(users), dtype=np.float32), (users, items)), shape=shape)
    made.sort_indices()
    return made


def likes(run: RunSettings) -> tuple[np.ndarray, np.ndarray]:
    """Users and items of the likes in the order of their first times, by the pipeline's own stages."""
    ingest(run.home, run.dataset, make_demo(run.home, run.demo, run.seed) if run.is_demo else run.sources, "benchmark")
    binarize(run.home, run.binarize, "benchmark")
    asked = "select user_index, item_index from indexed.interactions order by first_at, user_index, item_index"
    with warehouse.connect(run.home, read_only=True) as connection:
        found = connection.execute(asked).fetchnumpy()
    return found["user_index"].astype(np.int64), found["item_index"].astype(np.int64)


def cut(users: np.ndarray, items: np.ndarray, seed: int, share: float) -> Log:
    """Hold out users and likes. What is judged on are items that train on the first night of the chain."""
    random = np.random.default_rng(seed)
    part, draws = random.random(users.max() + 1), random.random(len(users))
    trains = part >= 0.3
    order = np.lexsort((draws, users))
    place = np.empty(len(users), dtype=np.int64)
    place[order] = np.arange(len(users))
    counts = np.bincount(users)
    place -= (np.cumsum(counts) - counts)[users]  # of a user's likes in random order, from 0
    first = round((1 - NIGHTS * share) * len(users))
    known = np.zeros(items.max() + 1, dtype=bool)
    known[items[:first][trains[users[:first]]]] = True
    left_out = trains[users] & (place == 0) & (counts[users] >= LEAST) & known[items]
    trained = trains[users] & ~left_out
    numbers, columns = _numbers(users[trained], len(part)), _numbers(items[trained], len(known))
    shape = int(numbers.max()) + 1, int(columns.max()) + 1
    judged = left_out & (numbers[users] >= 0) & (columns[items] >= 0)

    def held_out(chosen: np.ndarray) -> tuple[csr_matrix, csr_matrix]:
        rows, own = np.unique(users[chosen], return_inverse=True)
        targets = place[chosen] < counts[users[chosen]] // 5
        its = columns[items[chosen]]
        histories, targets = (
            matrix(own[of], its[of], (len(rows), shape[1])) for of in (~targets & (its >= 0), targets & (its >= 0))
        )
        return histories, targets

    return Log(
        numbers[users[trained]],
        columns[items[trained]],
        shape,
        held_out(part[users] < 0.2),
        held_out((part[users] >= 0.2) & (part[users] < 0.3)),
        (numbers[users[judged]], columns[items[judged]]),
    )


def _numbers(ids: np.ndarray, count: int) -> np.ndarray:
    """For each of so many ids its number by first appearance, or -1."""
    found, first = np.unique(ids, return_index=True)
    numbers = np.full(count, -1, dtype=np.int64)
    numbers[found[np.argsort(first)]] = np.arange(len(found))
    return numbers


def fitted(name: str, settings: dict, seed: int, log: Log, train: csr_matrix, before: Model | None, to: Found) -> Model:
    """A fit, from nothing or begun at an earlier one; its time and passes go `to` where they are counted."""
    kind, passes = MODELS[name], []
    start = None
    if before is not None:
        sizes = before.trained_shape
        places = (np.where(np.arange(now) < then, np.arange(now), -1) for now, then in zip(train.shape, sizes))
        start = Start(before, *places)
    validation = ValidationUsers(*(part[:, : train.shape[1]] for part in log.validation))
    options = FitOptions(start=start, validation=validation, on_epoch=passes.append)
    model = kind(kind.Settings(**settings), seed=seed)
    began = time.process_time()
    model.fit(train, options)
    to.seconds.append(time.process_time() - began)
    to.passes.append(len(passes))
    model.trained_shape = train.shape
    return model


def judge(model: Model, log: Log, train: csr_matrix, to: Found) -> None:
    """The figures of today's log, of each of the model's scores."""
    histories, targets = log.unseen
    asking = np.diff(targets.indptr) > 0
    _add(model, histories[asking], targets[asking], None, "ndcg@100", to)
    users, items = log.left_out
    _add(model, train[users], matrix(np.arange(len(users)), items, (len(users), log.shape[1])), users, "mean_rank", to)


def _add(
    model: Model, histories: csr_matrix, targets: csr_matrix, users: np.ndarray | None, figure: str, to: Found
) -> None:
    found: dict[str, list[np.ndarray]] = {score: [] for score in model.score_names}
    for first in range(0, histories.shape[0], BLOCK):
        block = slice(first, first + BLOCK)
        for score, scores in model.each_score(histories[block], users=None if users is None else users[block]):
            found[score].append(metrics.user_metrics(target_ranks(scores, histories[block], targets[block]))[figure])
    for score, values in found.items():
        to.values.setdefault((score, figure), []).append(np.concatenate(values))


def measured(name: str, settings: dict, log: Log, seeds: int, share: float, nights: int) -> dict[str, Found]:
    """Cold, warm and chain, over the seeds; of the chains the time of every warm night."""
    found = {way: Found() for way in ("cold", "warm", "chain")}
    none, today = Found(), log.at(1.0)
    small = log.at(0.05)
    compiled = fitted(name, settings, 0, log, small, None, none)
    fitted(name, settings, 0, log, log.at(0.06), compiled, none)
    for seed in range(1, seeds + 1):
        judge(fitted(name, settings, seed, log, today, None, found["cold"]), log, today, found["cold"])
        yesterday = fitted(name, settings, seed, log, log.at(1 - share), None, none)
        judge(fitted(name, settings, seed, log, today, yesterday, found["warm"]), log, today, found["warm"])
        if nights:
            last = fitted(name, settings, seed, log, log.at(1 - nights * share), None, none)
            for night in range(nights - 1, -1, -1):
                last = fitted(name, settings, seed, log, log.at(1 - night * share), last, found["chain"])
            judge(last, log, today, found["chain"])
    return found


def row(name: str, found: dict[str, Found]) -> dict[str, str]:
    """A line of the table."""
    cold = found["cold"]
    scores = {score: cold.mean(score, figure).value for score, figure in cold.values if figure == "ndcg@100"}
    score = max(scores, key=scores.get)
    times = {
        way: np.mean(found[way].seconds) / np.mean(cold.seconds) for way in ("warm", "chain") if found[way].seconds
    }
    cells = {"model": name, "score": score}
    for way in ("cold", "warm"):
        cells[f"{way}: passes, CPU s"] = f"{np.mean(found[way].passes):.0f}, {np.mean(found[way].seconds):.2f}"
    cells |= {f"{way}: time": f"{share:.2f}" for way, share in times.items()}
    within: list[
        tuple[float, float]
    ] = []  # how far a difference lies below zero, in standard errors: paired, and of the figure
    for figure, words in FIGURES.items():
        mean = cold.mean(score, figure)
        cells[f"cold: {words}"] = f"{mean.value:.4f} ± {mean.standard_error:.4f}"
        for way in times:
            difference, error = found[way].less(cold, score, figure)
            cells[f"{way} - cold: {words}"] = f"{difference:+.4f} ± {error:.4f}"
            within.append((-difference / error, -difference / mean.standard_error))
    paired, of_figure = np.max(within, axis=0)
    return cells | {"verdict": verdict(paired, of_figure, times["warm"])}


def verdict(paired: float, of_figure: float, share: float) -> str:
    """In words, from the worst difference in standard errors and the warm fit's share of the time."""
    if paired <= 1:
        words = "within one standard error"
    elif of_figure <= 1:
        words = "within one standard error of the figure, not of the difference"
    else:
        words = "cannot: ranks worse"
    if share >= 0.5:
        words = words.replace("within", "cannot: too slow, within")
    return f"{words} at {share:.2f} of the time"


def print_table(rows: list[dict[str, str]]) -> str:
    columns = list(rows[0])
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join(lines + [f"| {' | '.join(one[column] for column in columns)} |" for one in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="demo")
    parser.add_argument("--source", action="append", default=[], help="a log; may be repeated")
    parser.add_argument("--models", nargs="+", choices=WARM, default=WARM)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.01, help="of the likes that come in a night")
    parser.add_argument("--nights", type=int, default=NIGHTS, help="of the chain; 0 for none")
    parser.add_argument("--defaults", action="store_true", help="settings of the models, not of the data set's file")
    parser.add_argument("--out", type=Path, help="a file for the table too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        parameters = Backfill(dataset=options.dataset, home=folder, source=options.source, threads=1)
        run = resolve(parameters)
        log = cut(*likes(run), seed=1, share=options.share)
    of_file = {} if options.defaults else run.dataset.models
    print(
        f"{options.dataset}: {' x '.join(map(str, log.shape))}, {len(log.users):,} likes to train on; judged on "
        f"{log.unseen[0].shape[0]:,} unseen users and {len(log.left_out[0]):,} left-out likes; {options.seeds} seeds\n",
        flush=True,
    )
    rows = []
    for name in options.models:
        found = measured(name, of_file.get(name, {}), log, options.seeds, options.share, options.nights)
        rows.append(row(name, found))
        print(", ".join(f"{column}: {cell}" for column, cell in rows[-1].items()), flush=True)
    table = print_table(rows)
    print("\n" + table)
    if options.out:
        options.out.write_text(table + "\n")


if __name__ == "__main__":
    main()
