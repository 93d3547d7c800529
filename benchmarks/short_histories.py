"""What `wmf` and `graph_filter` take from the log where users have few likes, beside other settings.

    python -m benchmarks.short_histories --root ../shared/data [--logs ml-1m gowalla] [--least 0 2 2.8 4]
    python -m benchmarks.short_histories --root ../shared/data --model graph_filter [--logs ml-100k yelp2018]

Of every user of a log some likes are kept, 1 + a geometric number of them, so that the mean comes to each of LENGTHS;
at most so many users (`--users`) are taken. A tenth of them, with two likes or more, judge: a fifth of theirs, one at
least, is to be found, given the rest. A row is a log and a mean: nDCG@100 of popularity, and of `wmf` where a mean
user's penalty is at least so many edges (`models/wmf/model.py`); 0 is the rule without a least. Or of `graph_filter` with the
low-pass and the sharpening of long histories, and by its rule (`models/graph_filter/settings.py`). The lines below have the mean of
the share of the best in the row, and, with each log left out, what the others choose and what that is
worth.

    python -m benchmarks.short_histories --root ../shared/data --logs ml-1m --write short.csv

writes the first log with the shortest histories instead, for `python -m flows.backfill --dataset mine --source
short.csv`.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, vstack

from benchmarks.transfer import Log, read
from models.base import Model
from models.evaluation.metrics import user_metrics
from models.evaluation.ranking import target_ranks
from models.graph_filter.model import GraphFilter
from models.graph_filter.settings import FROM_HISTORIES, VECTORS, GraphFilterSettings
from models.popularity import Popularity
from models.wmf.model import SHRINKAGE, UNOBSERVED, WMF, WMFSettings

LENGTHS = (2.5, 5.0, 10.0, 20.0, 35.0)


def shortened(log: Log, users: int, length: float, seed: int) -> Log:
    """Users with few of their likes each; the first tenth judges, on the items that the others like."""
    draws = np.random.default_rng(seed)
    whole = edges(log)
    chosen = draws.permutation(whole.shape[0])[:users]
    kept = [
        draws.permutation(whole.indices[whole.indptr[user] : whole.indptr[user + 1]])[: draws.geometric(1 / length)]
        for user in chosen
    ]
    judges = len(kept) // 10
    train = _rows(kept[judges:], whole.shape[1])
    known = np.bincount(train.indices, minlength=whole.shape[1]) > 0
    found = [items for items in (items[known[items]] for items in kept[:judges]) if len(items) >= 2]
    cuts = [max(1, len(items) // 5) for items in found]
    histories = _rows([items[cut:] for items, cut in zip(found, cuts, strict=True)], whole.shape[1])
    targets = _rows([items[:cut] for items, cut in zip(found, cuts, strict=True)], whole.shape[1])
    return Log(log.name, *(part[:, known].tocsr() for part in (train, histories, targets)))


def edges(log: Log) -> csr_matrix:
    """All of a log, (users, items)."""
    return vstack([log.train, log.histories + log.targets]).tocsr()


def _rows(likes: list[np.ndarray], items: int) -> csr_matrix:
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in likes])])
    made = csr_matrix((np.ones(indptr[-1], np.float32), np.concatenate(likes), indptr), shape=(len(likes), items))
    made.sort_indices()
    return made


def ndcg(model: Model, log: Log) -> float:
    scores = model.fit(log.train).scores(log.histories)
    return float(user_metrics(target_ranks(scores, log.histories, log.targets))["ndcg@100"].mean())


def wmf(least: float, log: Log, threads: int) -> WMF:
    degree = log.train.nnz / log.train.shape[0]
    return WMF(WMFSettings(regularization=max(SHRINKAGE, least / degree) / (1 + UNOBSERVED)), threads=threads)


def of_long_histories(log: Log, threads: int) -> GraphFilter:
    settings = {name: of_long for name, (_, of_long) in FROM_HISTORIES.items()}
    settings["vectors"] = round(VECTORS * log.train.shape[1] ** 0.5)
    return GraphFilter(GraphFilterSettings(**settings), threads=threads)


def forms(model: str, least: list[float]) -> dict[str, Callable[[Log, int], Model]]:
    """What makes the estimators to be compared on a log, by the name of their column."""
    if model == "wmf":
        return {f"{edges:g}": partial(wmf, edges) for edges in least}
    return {"as of long histories": of_long_histories, "by the rule": lambda log, threads: GraphFilter(threads=threads)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--logs", nargs="+", default=["ml-1m", "lastfm-hetrec2011", "citeulike-a", "gowalla"])
    parser.add_argument("--model", choices=("wmf", "graph_filter"), default="wmf")
    parser.add_argument("--least", nargs="+", type=float, default=[0, 1.6, 2.0, 2.4, 2.8, 3.2, 4.0])
    parser.add_argument("--users", type=int, default=12_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    if given.write:
        log = shortened(read(given.logs[0], given.root, given.threads), given.users, LENGTHS[0], given.seed)
        np.savetxt(given.write, np.transpose(edges(log).nonzero()), "%d", ",", header="user,item", comments="")
        return
    made = forms(given.model, given.least)
    print("| log | likes a user | popularity |", *(f"{name} |" for name in made))
    print("|---|---|---|" + "---|" * len(made))
    shares: dict[str, list[np.ndarray]] = {}
    for name in given.logs:
        whole = read(name, given.root, given.threads)
        for length in LENGTHS:
            log = shortened(whole, given.users, length, given.seed)
            values = np.array([ndcg(make(log, given.threads), log) for make in made.values()])
            shares.setdefault(name, []).append(values / values.max())
            mean = f"{log.train.nnz / log.train.shape[0]:.1f} | {ndcg(Popularity(), log):.4f}"
            print(f"| {name} | {mean} |", *(f"{value:.4f} |" for value in values), flush=True)
    means = np.mean(np.concatenate([*shares.values()]), axis=0)
    print("| share of the best | | |", *(f"{mean:.3f} |" for mean in means))
    for name in given.logs if len(given.logs) > 1 else ():
        others = np.concatenate([rows for other, rows in shares.items() if other != name]).mean(axis=0)
        taken, own = int(np.argmax(others)), np.mean(shares[name], axis=0)
        first, best = next(iter(made)), list(made)[taken]
        print(f"{name} left out: {best}, worth {own[taken]:.3f} of its best; {first}: {own[0]:.3f}")


if __name__ == "__main__":
    main()
