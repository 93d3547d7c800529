"""Reproduce Tables 1 and 2 of Steck, "Markov Random Fields for Collaborative Filtering" (2019), on any log.

    python -m benchmarks.accuracy.mrf_tables --dataset ml-1m --source ratings.csv
    python -m benchmarks.accuracy.mrf_tables --dataset ml-100k --source u.data --models mrf_dense mrf_sparse slim wmf

Table 1 has the dense field beside SLIM, WMF and the autoencoders, Table 2 the sparse field by its density and r. Users
of the test part are unseen (strong_generalization, as in the paper). Settings are the data set's own, or the defaults.
The paper's densities, 0.5 % and 0.1 % of 41,140 items, are 206 and 41 neighbours of an item: the densities here give as
many neighbours with the log's items. Training seconds are CPU seconds of all threads, without compiling.
"""

import argparse
import tempfile
import time

from benchmarks.accuracy.bayesian_models import build_splits, print_table
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import RunSettings, resolve_settings
from oneclass.models.base import Model
from oneclass.models.evaluation import metrics
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.evaluate import rank_part_targets
from oneclass.tasks.stores.matrices import SplitMatrices

DENSE, SPARSE, BEST_OF_PAPER = "mrf_dense", "mrf_sparse", "mult_vae"
TABLE_1 = (DENSE, BEST_OF_PAPER, "mult_dae", "cdae", "slim", "wmf")
NEIGHBOURS, RATES = (206, 41), (0.0, 0.1, 0.5)
METRICS = {"ndcg@100": "nDCG@100", "recall@20": "Recall@20", "recall@50": "Recall@50"}
COMPILE_USERS = 100  # of a first fit, which compiles


def build_tables(run: RunSettings, split: SplitMatrices, models: list[str]) -> tuple[list[dict], list[dict]]:
    """Fit and evaluate the models; returns the rows of both tables."""
    rows = {name: evaluate_model(run, split, name, {}, name) for name in TABLE_1 if name in models}
    first = list(rows.values())
    second = [rows[DENSE]] if DENSE in rows else []
    if SPARSE in models:
        items = split.train.shape[1]
        for neighbours in NEIGHBOURS:
            density = min(1.0, neighbours / items)
            for r in RATES:
                varied = {"density": density, "threshold": None, "r": r}
                second.append(evaluate_model(run, split, SPARSE, varied, f"{SPARSE}, {100 * density:.2g} %, r = {r:g}"))
    if BEST_OF_PAPER in rows:
        second.append(rows[BEST_OF_PAPER])
    return first, second


def evaluate_model(run: RunSettings, split: SplitMatrices, name: str, varied: dict, label: str) -> dict[str, str]:
    """Return a row: the accuracy on unseen users with standard errors, and the CPU seconds of the fit."""
    settings = MODELS[name].Settings(**{**run.dataset.models.get(name, {}), **varied})
    fit_users(run, split, name, settings, COMPILE_USERS)
    model, seconds = fit_users(run, split, name, settings, split.train.shape[0])
    of_users = rank_part_targets(model, model.score_names[0], split.parts["test"]).of_users
    means = metrics.average_over_users(of_users)
    cells = {shown: f"{means[key].value:.4f} ± {means[key].standard_error:.4f}" for key, shown in METRICS.items()}
    return {"model": label, **cells, "training, CPU s": f"{seconds:.2f}"}


def fit_users(
    run: RunSettings, split: SplitMatrices, name: str, settings: ModelSettings, users: int
) -> tuple[Model, float]:
    """Fit a model to the first users; returns it with its CPU seconds."""
    began = time.process_time()
    model = MODELS[name](settings, seed=run.seed, threads=run.home.limits.threads).fit(split.train[:users])
    return model, time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--source", action="append", default=[], help="a log; may be repeated")
    parser.add_argument("--models", nargs="+", choices=[*TABLE_1, SPARSE], default=[*TABLE_1, SPARSE])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = resolve_settings(
            BackfillParameters(
                dataset=options.dataset,
                home=folder,
                source=options.source,
                seed=options.seed,
                protocols=["strong_generalization"],
                threads=options.threads,
            )
        )
        split = build_splits(run)["strong_generalization"]
        users, items = split.train.shape
        print(
            f"{run.dataset.name}: {users} training users, {items} items, {split.train.nnz} training edges, "
            f"{len(split.parts['test'].users)} test users, seed {run.seed}",
            flush=True,
        )
        first, second = build_tables(run, split, options.models)
        for number, rows in ((1, first), (2, second)):
            if rows:
                print(f"\nTable {number}\n")
                print_table(rows)


if __name__ == "__main__":
    main()
