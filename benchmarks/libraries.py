"""Compare our models with other libraries', each searched with the same budget, on the same split of a log.

    python -m benchmarks.libraries --dataset demo --trials 10
    python -m benchmarks.libraries --dataset ml-1m --source ratings.csv --peers implicit_als irspack_ials

Run it by an interpreter that also has the libraries (`benchmarks.peers` says how to install them); one that is missing
is left out. The split is that of `flows.backfill` under strong_generalization: validation and test users are not in
training. Every row is searched by one function: the first trial has the initial settings (ours: the defaults), the
others are drawn by Optuna's TPE from the row's space, until there are `--trials` or, after the first, `--seconds` of
CPU time are spent. A trial is fitted on the training edges and judged by nDCG@100 of the validation users; a model with
several scores by its best. The test users are read once, at the end.

Prints nDCG@100 of the test users with standard errors. Bold is the best; `=` marks rows that a paired t-test over
users, corrected for the choice of the best, does not call worse. For a small run: `--models wmf popularity --trials 2`.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from scipy.sparse import csr_matrix

from benchmarks.common import Part, Scorer, parse_options, print_head, print_row, rank_users, run_popularity
from benchmarks.peers import PEERS, is_installed
from oneclass.models.derived_settings import apply_trial
from oneclass.models.evaluation.metrics import ALPHA, adjust_against_best, compare_paired
from oneclass.models.registry import MODELS
from oneclass.tasks.stores import fits, matrices, warehouse
from oneclass.tasks.tuning.search import to_distribution

METRIC, RANDOM_TRIALS = "ndcg@100", 4
OWN_MODELS = ["popularity", "item_knn", "sansa", "slim", "mrf_dense", "mrf_sparse", "wmf", "graph_filter"]
Space = dict[str, BaseDistribution]
Fit = Callable[[Mapping[str, Any], csr_matrix], dict[str, Scorer]]  # of drawn values and edges; the scores by name


def build_own_fit(name: str, seed: int, threads: int) -> tuple[Fit, Space]:
    """Build the fit and the space of one of our models."""
    kind = MODELS[name]

    def fit(values: Mapping[str, Any], train: csr_matrix) -> dict[str, Scorer]:
        settings = apply_trial(kind.Settings(), values, train) if values else kind.Settings()
        model = kind(settings, seed=seed, threads=threads).fit(train)
        names, score = kind.score_names, model.scores
        return {name: lambda histories, rows, name=name: score(histories, users=rows, score=name) for name in names}

    return fit, {key: to_distribution(of) for key, of in kind.Settings.search_space.items()}


def build_peer_fit(name: str, seed: int, threads: int) -> tuple[Fit, Space]:
    """Build the fit and the space of a library's model."""

    def fit(values: Mapping[str, Any], train: csr_matrix) -> dict[str, Scorer]:
        scorer = PEERS[name].fit(train, threads, seed, **{**PEERS[name].settings, **values})
        return {"score": lambda histories, rows: scorer(histories)}

    return fit, PEERS[name].space


def load_split(options: argparse.Namespace) -> tuple[csr_matrix, Part, Part]:
    """Return the training edges, and the validation and the test users, as the pipeline splits the log."""
    with run_popularity(options.dataset, options.source, options.set, options.seed) as home:
        with warehouse.open_warehouse(home, read_only=True) as connection:
            query = "select digest from operations.model_fits where protocol = 'strong_generalization'"
            [digest] = warehouse.fetch_row(connection, query)
        split = matrices.load_split(home, fits.find_fit(home, "popularity", digest).matrices)
        parts = (split.parts[name] for name in ("validation", "test"))
        return split.train.sign(), *(Part(part.histories.sign(), part.targets.sign()) for part in parts)


def search(fit: Fit, space: Space, train: csr_matrix, part: Part, options: argparse.Namespace) -> tuple[dict, str]:
    """Search the settings of a row on the part; returns the best drawn values, and the score with them."""
    sampler = optuna.samplers.TPESampler(seed=options.seed, n_startup_trials=RANDOM_TRIALS)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    began, trials, best = time.process_time(), 0, (-np.inf, "", {})
    while trials < options.trials and (not trials or (space and time.process_time() - began < options.seconds)):
        trial = study.ask(space) if trials else None
        values = trial.params if trial else {}
        try:
            scorers = fit(values, train).items()
            value, score = max((rank_users(scorer, part)[METRIC].mean(), name) for name, scorer in scorers)
        except ValueError as error:  # settings that contradict each other
            print(f"  {values}: {error}", flush=True)
            value, score = 0.0, ""
        if trial:
            study.tell(trial, value)
        best = max(best, (value, score, values), key=lambda one: one[0])
        trials += 1
    return best[2], best[1]


def main() -> None:
    options = parse_options(__doc__, dataset="demo", source=[], set=[], seed=0, threads=2, models=OWN_MODELS,
                            peers=[*PEERS], trials=10, seconds=600.0)  # fmt: skip
    warnings.filterwarnings("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    train, validation, test = load_split(options)
    (users, items), tested = train.shape, test.targets.shape[0]
    print(f"{options.dataset}: {users:,} users, {items:,} items, {train.nnz:,} edges, {tested} test users")
    builders = dict.fromkeys(options.models, build_own_fit)
    builders |= dict.fromkeys(filter(is_installed, options.peers), build_peer_fit)
    found: dict[str, np.ndarray] = {}
    for name, build in builders.items():
        fit, space = build(name, options.seed, options.threads)
        values, score = search(fit, space, train, validation, options)
        found[name] = rank_users(fit(values, train)[score], test)[METRIC]
        print(f"{name}: {found[name].mean():.4f}, {values}", flush=True)
    best = max(found, key=lambda name: found[name].mean())
    others = [name for name in found if name != best]
    raw = [compare_paired(found[best], found[name]).p_value for name in others]
    adjusted = adjust_against_best(np.nan_to_num(np.array(raw, dtype=float), nan=1.0))
    level = {name for name, p_value in zip(others, adjusted, strict=True) if p_value > ALPHA}
    print()
    print_head(["model", METRIC])
    for name, values in sorted(found.items(), key=lambda one: -one[1].mean()):
        mean = f"{values.mean():.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}"
        print_row([name, f"**{mean}**" if name == best else f"{mean} =" if name in level else mean])


if __name__ == "__main__":
    main()
