"""What `like` gains where a log tells what was considered and not liked, on pairs that were left out of the fit.

    python -m benchmarks.observed_negatives --dataset ml-1m --source ratings.csv
    python -m benchmarks.observed_negatives --dataset demo

A tenth of the likes and a tenth of what was considered and not liked are left out at random, with another draw and another
fit for each of --seeds. Rows are `random_graph` without and with its settings `observed_negatives` and `fill_negatives`, the
others by the data set's own file, and popularity: the share of an item's considerers who like it (`models.evaluation.considered`). Figures are means
over seeds, with their standard errors:

    AUC, log loss, calibration error    of the pairs left out, likes and dislikes
    coin: calibration error, r          against the true probability, and the correlation with it; the demo's alone
    nDCG@100                            of the likes left out among all items outside training, by each score
    CPU s                               of the fit, all threads together
"""

import argparse
import tempfile
import time
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.bayesian_models import print_table
from flows.parameters import Backfill
from flows.settings import RunSettings, resolve
from models.base import Model
from models.evaluation import metrics
from models.evaluation.considered import calibration_error, judge, liked_shares
from models.fitting import FitOptions
from models.random_graph.model import RandomGraph
from tasks.demo.story import tell
from tasks.evaluate import rank
from tasks.ingest import ingest
from tasks.stores import warehouse
from tasks.stores.matrices import Part

HELD_OUT = 0.1
CONSIDERED = """
with pairs as (
    select user_id, item_id, max(value) >= ? as liked from raw.events group by all
),
numbered as (
    select dense_rank() over (order by user_id) - 1, dense_rank() over (order by item_id) - 1, liked from pairs
)
from numbered order by all
"""
FITS = {
    "random_graph": {},
    "random_graph, observed_negatives": {"observed_negatives": True},
    "random_graph, observed_negatives, fill_negatives = false": {"observed_negatives": True, "fill_negatives": False},
}
OF_FIGURES = {"AUC": "considered_auc", "log loss": "considered_log_loss"}
OF_FIGURES |= {"calibration error": "considered_calibration_error"}


@dataclass(frozen=True)
class Considered:
    """Pairs that were considered: (pairs,) arrays; `coin` is the true probability of a like, or None."""

    users: np.ndarray
    items: np.ndarray
    liked: np.ndarray
    coin: np.ndarray | None

    def matrix(self, some: np.ndarray) -> csr_matrix:
        """Some of the pairs as a (users, items) matrix of ones."""
        edges = np.ones(some.sum(), dtype=np.float32), (self.users[some], self.items[some])
        found = csr_matrix(edges, shape=(self.users.max() + 1, self.items.max() + 1))
        found.sort_indices()
        return found


def read(run: RunSettings) -> Considered:
    """All pairs of a log, or of the demo's story."""
    if run.is_demo:
        story = tell(run.demo, run.seed)
        items = np.repeat(np.arange(run.demo.items), np.diff(story.starts))
        return Considered(story.users, items, story.liked, story.probability)
    ingest(run.home, run.dataset, run.sources, "benchmark")
    with warehouse.connect(run.home, read_only=True) as connection:
        columns = connection.execute(CONSIDERED, [run.binarize.threshold]).fetchnumpy().values()
    users, items, liked = (np.asarray(column) for column in columns)
    return Considered(users, items, liked, None)


def of_model(model: Model, train: csr_matrix, pairs: Considered, held: np.ndarray) -> dict[str, float]:
    """The figures of a fit."""
    users, items, liked = pairs.users[held], pairs.items[held], pairs.liked[held]
    like = model.like(train[users], users=users, items=items[:, None])[0][:, 0]
    found = figures(like, liked, None if pairs.coin is None else pairs.coin[held])
    targets = pairs.matrix(held & pairs.liked)
    some = np.flatnonzero((np.diff(targets.indptr) > 0) & (np.diff(train.indptr) > 0))
    part = Part(train[some], targets[some], users=some, rows=some)
    for score in model.score_names:
        found[f"nDCG@100, {score}"] = metrics.over_users(rank(model, score, part).of_users)["ndcg@100"].value
    return found


def figures(like: np.ndarray, liked: np.ndarray, coin: np.ndarray | None) -> dict[str, float]:
    """The figures of probabilities of pairs."""
    judged = judge(like, liked)
    found = {name: judged[metric].value for name, metric in OF_FIGURES.items()}
    if coin is not None:
        found |= {"coin: calibration error": calibration_error(like, coin), "coin: r": np.corrcoef(like, coin)[0, 1]}
    return found


def of_seed(pairs: Considered, run: RunSettings, seed: int) -> dict[str, dict[str, float]]:
    """The figures of one draw, by row."""
    held = np.random.default_rng(seed).random(len(pairs.users)) < HELD_OUT
    likes, dislikes = (pairs.matrix(~held & which) for which in (pairs.liked, ~pairs.liked))
    shares = liked_shares(likes, dislikes)[pairs.items[held]]
    coin = None if pairs.coin is None else pairs.coin[held]
    found = {"popularity: share of considerers": figures(shares, pairs.liked[held], coin)}
    for name, changed in FITS.items():
        settings = run.models["random_graph"].model_copy(update=changed)
        model, began = RandomGraph(settings, seed=seed, threads=run.home.limits.threads), time.process_time()
        model.fit(likes, FitOptions(negatives=dislikes))
        found[name] = {"CPU s": time.process_time() - began} | of_model(model, likes, pairs, held)
    return found


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--source", action="append", default=[], help="a log; may be repeated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = resolve(
            Backfill(
                dataset=arguments.dataset,
                home=folder,
                source=arguments.source,
                models=["random_graph"],
                seed=1,
                threads=arguments.threads,
            )
        )
        pairs = read(run)
        print(
            f"{run.dataset.name}: {pairs.users.max() + 1} users x {pairs.items.max() + 1} items, {pairs.liked.sum()} likes, "
            f"{(~pairs.liked).sum()} considered and not liked; {arguments.seeds} seeds\n",
            flush=True,
        )
        found = [of_seed(pairs, run, seed) for seed in range(1, arguments.seeds + 1)]
        print_table([{"model": row} | {name: cell(found, row, name) for name in found[0][row]} for row in found[0]])


def cell(found: list[dict[str, dict[str, float]]], row: str, name: str) -> str:
    """The mean over seeds, and its standard error."""
    values = np.array([one[row][name] for one in found])
    if name == "CPU s":
        return f"{np.median(values):.1f}"
    error = f" ({values.std(ddof=1) / np.sqrt(len(values)):.4f})" if len(values) > 1 else ""
    return f"{values.mean():.4f}{error}"


if __name__ == "__main__":
    main()
