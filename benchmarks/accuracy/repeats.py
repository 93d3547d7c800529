"""Evaluate lists that may repeat the history, for users who return, on generated logs and on counts of plays.

    python -m benchmarks.accuracy.repeats [--root ../shared/data] [--logs groceries places baskets films lastfm]

Targets are all items of a user in a later window, repeats included, that some user had before. The generated logs
(`models.generator.returns`) are cut before the last tenth of the events; nobody returns in `films`, and in `baskets`
users repeat items only because these are popular and to their taste. The plays of ROOT/lastfm-hetrec2011 have no times:
each play is drawn to be earlier or later, both with probability PLAY_SHARE, and dropped otherwise. The table has
nDCG@100 with its standard error, that of repeats and of new items alone, and the paired difference of the mixture to
each row. Our settings are the defaults. Rows of `implicit` and `irspack` appear if these are installed; each has the
best of its settings in LIBRARIES, chosen on the later window itself, in the library's favour.
"""

import argparse
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.accuracy.competitors import fit_implicit_als, fit_irspack_ease, fit_irspack_ials
from oneclass.models.evaluation.metrics import compare_paired, compute_user_metrics, mean_and_error
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.generator.likes import draw_ratings
from oneclass.models.generator.returns import draw_loyalty, draw_mean_gaps, draw_return_events
from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages
from oneclass.models.registry import MODELS
from oneclass.tasks.demo.story import DemoSettings, simulate_likes

PLAY_SHARE = 0.005
LATER_SHARE = 0.1
METRIC = "ndcg@100"
IMPLICIT = [
    {"factors": 64, "regularization": regularization, "alpha": alpha, "iterations": 15}
    for regularization in (0.1, 10.0)
    for alpha in (4.0, 40.0)
]
IALS = [
    {"n_components": 64, "alpha0": alpha0, "reg": reg, "train_epochs": 10}
    for alpha0 in (0.03, 0.3)
    for reg in (3e-4, 3e-3)
]
EASE = [{"reg": reg} for reg in (10.0, 100.0, 1000.0)]
LIBRARIES: dict[str, tuple[str, Callable[..., Any], list[dict[str, Any]]]] = {
    "implicit's ALS": ("implicit", fit_implicit_als, IMPLICIT),
    "irspack's iALS": ("irspack", fit_irspack_ials, IALS),
    "irspack's EASE": ("irspack", fit_irspack_ease, EASE),
}
USERS_PER_BLOCK = 500


@dataclass(frozen=True)
class Returns:
    """How users return in a generated log."""

    demo: DemoSettings
    loyalty: float
    median_gap: float
    gap_sd: float
    days: int = 730


SHOP = DemoSettings(users=3000, items=1500, likes=60_000)
GENERATED = {
    "groceries": Returns(SHOP, loyalty=0.75, median_gap=21, gap_sd=0.6),
    "places": Returns(DemoSettings(users=3000, items=4000, likes=60_000), loyalty=0.5, median_gap=60, gap_sd=0.25),
    "films": Returns(SHOP, loyalty=0.0, median_gap=30, gap_sd=0.5),
}

Log = tuple[csr_matrix, csr_matrix]  # the training log, and later events of its items


def generate_events(returns: Returns, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate likes with their first days, and let the users return: users, items and days of all events."""
    simulation = simulate_likes(returns.demo, seed)
    items = np.repeat(np.arange(returns.demo.items), np.diff(simulation.starts))
    users, items = simulation.users[simulation.liked], items[simulation.liked]
    _, first = draw_ratings(users, items, np.ones(len(users), dtype=bool), seed, returns.days)
    loyalty = draw_loyalty(returns.demo.users, returns.loyalty, 0.8, seed)
    gaps = draw_mean_gaps(returns.demo.items, returns.median_gap, 0.7, seed)
    pairs, days = draw_return_events(
        users, items, first, loyalty, gaps, gap_sd=returns.gap_sd, days=returns.days, seed=seed
    )
    return users[pairs], items[pairs], days


def generate_log(returns: Returns, seed: int) -> Log:
    """Cut the events of a simulated log."""
    return cut_log(*generate_events(returns, seed), (returns.demo.users, returns.demo.items))


def generate_baskets(seed: int) -> Log:
    """Draw Poisson counts of popularity times taste, with uniform days, so that past events add no information."""
    generator, shape = np.random.default_rng(seed), (2000, 800)
    rates = np.exp(0.5 * generator.normal(size=(shape[0], 3)) @ generator.normal(size=(3, shape[1])))
    rates *= np.exp(1.5 * generator.normal(size=shape[1]) + 0.7 * generator.normal(size=(shape[0], 1)))
    users, items = np.nonzero(counts := generator.poisson(80_000 * rates / rates.sum()))
    users, items = (np.repeat(ids, counts[users, items]) for ids in (users, items))
    return cut_log(users, items, generator.integers(400, size=len(users)), shape)


def cut_log(users: np.ndarray, items: np.ndarray, days: np.ndarray, shape: tuple[int, int]) -> Log:
    """Cut events before the day that leaves LATER_SHARE of them."""
    cut = int(np.quantile(days, 1 - LATER_SHARE))
    before = days < cut
    order = np.lexsort((-days[before], items[before], users[before]))
    users_before, items_before = users[before][order], items[before][order]
    starts = np.flatnonzero(np.diff(users_before * np.int64(shape[1]) + items_before, prepend=-1))
    bounds = np.append(starts, len(order))
    train = csr_matrix((np.diff(bounds).astype(np.float32), (users_before[starts], items_before[starts])), shape=shape)
    ages = (cut - 1 - days[before][order]).astype(np.int32)
    return with_event_ages(train, EventAges(bounds, ages)), count_events(users[~before], items[~before], train)


def thin_plays(file: Path, seed: int) -> Log:
    """Draw plays before and after from counts of plays."""
    users, items, plays = np.loadtxt(file, skiprows=1, dtype=np.int64).T
    users, items = (np.unique(ids, return_inverse=True)[1] for ids in (users, items))
    generator, shape = np.random.default_rng(seed), (users.max() + 1, items.max() + 1)
    before, later = (generator.binomial(plays, PLAY_SHARE) for _ in range(2))
    train = csr_matrix((before.astype(np.float32), (users, items)), shape=shape)
    train.eliminate_zeros()
    return train, count_events(users[later > 0], items[later > 0], train)


def count_events(users: np.ndarray, items: np.ndarray, train: csr_matrix) -> csr_matrix:
    """Count the events of users and items of the training log in a matrix."""
    known = (np.diff(train.indptr)[users] > 0) & (np.bincount(train.indices, minlength=train.shape[1])[items] > 0)
    ones = np.ones(np.count_nonzero(known), dtype=np.float32)
    later = csr_matrix((ones, (users[known], items[known])), shape=train.shape)
    later.sort_indices()
    return later


Scorer = Callable[[np.ndarray], np.ndarray]  # rows of the training log to float32 (rows, items)


def build_scorers(train: csr_matrix, component: str, seed: int, threads: int) -> Iterator[tuple[str, Scorer]]:
    """Yield the rows of the table by name, a library's once for each of its settings; each scores all items."""
    popularity = np.bincount(train.indices, minlength=train.shape[1]).astype(np.float32)
    yield "popularity", lambda rows: np.tile(popularity, (len(rows), 1))

    def score_by_own_counts(rows: np.ndarray) -> np.ndarray:
        counts = train[rows].toarray()
        return np.where(counts > 0, counts, popularity / (1 + popularity.max()) - 1).astype(np.float32)

    yield "own counts, then popularity", score_by_own_counts
    for name in ("wmf", component):
        model = MODELS[name](MODELS[name].Settings(), seed=seed, threads=threads).fit(csr_matrix(train))
        yield name, lambda rows, model=model: model.scores(csr_matrix(train[rows]), users=rows)

        def score_without_history(rows: np.ndarray, model=model) -> np.ndarray:
            return np.where(train[rows].toarray() > 0, -np.inf, model.scores(csr_matrix(train[rows]), users=rows))

        yield f"{name}, history left out", score_without_history
    for name, (package, fit, candidates) in LIBRARIES.items():
        for settings in candidates if importlib.util.find_spec(package) else ():
            scorer = fit(csr_matrix(train), threads, seed, **settings)
            yield name, lambda rows, scorer=scorer: scorer(csr_matrix(train[rows]))
    for name, more in (("repeat", {}), ("repeat_mixture", {"component": component})):
        model = MODELS[name](MODELS[name].Settings(**more), seed=seed, threads=threads).fit(train)
        yield name, lambda rows, model=model: model.scores(train[rows], users=rows)


def rank_log(scorer: Scorer, train: csr_matrix, later: csr_matrix) -> dict[str, np.ndarray]:
    """Compute nDCG@100 of each user over `all` items, `again` those of the history, and the `new` ones.

    NaN for a user without such an event.
    """
    users = np.flatnonzero(np.diff(later.indptr))
    ndcg = {part: np.full(len(users), np.nan) for part in ("all", "again", "new")}
    for first in range(0, len(users), USERS_PER_BLOCK):
        rows = users[first : first + USERS_PER_BLOCK]
        scores, targets, seen = scorer(rows).astype(np.float32), later[rows].toarray() > 0, train[rows].toarray() > 0
        for part, wanted in (("all", targets), ("again", targets & seen), ("new", targets & ~seen)):
            some = np.flatnonzero(wanted.any(axis=1))
            if len(some):
                shown = csr_matrix((len(some), scores.shape[1]), dtype=np.float32)  # nothing is left out
                ranks = rank_targets(scores[some], shown, csr_matrix(wanted[some].astype(np.float32)))
                ndcg[part][first + some] = compute_user_metrics(ranks)[METRIC]
    return ndcg


def print_table(name: str, log: Log, component: str, seed: int, threads: int) -> None:
    """Print a log's table in Markdown."""
    train, later = log
    is_repeat = np.asarray((train > 0)[later.nonzero()]).ravel()
    print(
        f"\n{name}: {train.shape[0]:,} users, {train.shape[1]:,} items, {int(train.sum()):,} events of {train.nnz:,} "
        f"pairs; later {later.nnz:,} pairs, {is_repeat.mean():.0%} of them repeats\n"
    )
    print(f"| list | {METRIC} | repeats | new | repeat_mixture minus this |\n|---|---|---|---|---|", flush=True)
    rows: dict[str, dict[str, np.ndarray]] = {}
    for row, scorer in build_scorers(train, component, seed, threads):
        ndcg = rank_log(scorer, train, later)
        if row not in rows or ndcg["all"].mean() > rows[row]["all"].mean():
            rows[row] = ndcg
    mixture = rows["repeat_mixture"]["all"]
    for row, ndcg in rows.items():
        mean = mean_and_error(ndcg["all"])
        parts = [ndcg[part][~np.isnan(ndcg[part])] for part in ("again", "new")]
        cells = [f"{part.mean():.4f}" if len(part) else "" for part in parts]
        gain = compare_paired(mixture, ndcg["all"])
        difference = "" if row == "repeat_mixture" else f"{gain.difference:+.4f} ± {gain.standard_error:.4f}"
        print(
            f"| {row} | {mean.value:.4f} ± {mean.standard_error:.4f} | {' | '.join(cells)} | {difference} |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="the folder of the logs' folders; needed for lastfm")
    parser.add_argument("--logs", nargs="+", choices=[*GENERATED, "baskets", "lastfm"], default=[*GENERATED, "baskets"])
    parser.add_argument("--component", choices=list(MODELS), default="mrf_sparse", help="the model of new items")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if "lastfm" in options.logs and options.root is None:
        parser.error("lastfm needs --root")
    for name in options.logs:
        if name in GENERATED:
            log = generate_log(GENERATED[name], options.seed)
        elif name == "baskets":
            log = generate_baskets(options.seed)
        else:
            log = thin_plays(options.root / "lastfm-hetrec2011" / "user_artists.dat", options.seed)
        print_table(name, log, options.component, options.seed, options.threads)


if __name__ == "__main__":
    main()
