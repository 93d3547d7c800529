"""A library's settings, sought on the validation users."""

import time
from typing import Any

import numpy as np
import optuna
from threadpoolctl import threadpool_limits

from benchmarks.accuracy.competitors.catalogue import LIBRARIES
from benchmarks.accuracy.competitors.scorers import Fit
from oneclass.tasks.evaluate.ranking import rank_part_targets
from oneclass.tasks.stores.matrices import Part, SplitMatrices

STARTUP = 5  # trials before the sampler proposes any


def library_fit(name: str, settings: dict[str, Any], split: SplitMatrices, threads: int, seed: int) -> Fit:
    """One library's fit on the training users."""
    with threadpool_limits(threads):
        return Fit(name, threads, LIBRARIES[name].fit(split.train, threads, seed, **settings))


def judged(model: Any, part: Part, score: str = "score") -> dict[str, np.ndarray]:
    """`metrics.user_metrics` of the part's users."""
    return rank_part_targets(model, score, part).of_users


def search(name: str, split: SplitMatrices, trials: int, threads: int, seed: int) -> dict[str, Any]:
    """The best settings of some by the validation users' nDCG@100; the first are `Library.start`. Prints every trial."""
    library, tried = LIBRARIES[name], []
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial(library.start or library.settings)
    for number in range(1, trials + 1):
        trial, began = study.ask(library.space), time.process_time()
        settings = library.settings | trial.params
        of_users = judged(library_fit(name, settings, split, threads, seed), split.parts["validation"])
        value = of_users["ndcg@100"].mean()
        study.record_trial(trial, value)
        tried.append((value, settings))
        shown = ", ".join(
            f"{key}={one:.4g}" if isinstance(one, float) else f"{key}={one}" for key, one in settings.items()
        )
        print(
            f"{name} {number:3} {value:.4f}, S {of_users['mean_rank'].mean():.4f} ({shown}), "
            f"{time.process_time() - began:.1f} s CPU; best {study.best_value:.4f}",
            flush=True,
        )
    return max(tried, key=lambda one: one[0])[1]
