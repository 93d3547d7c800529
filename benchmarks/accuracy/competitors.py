"""Other libraries' models and their searches, and ours on the same split; used by `benchmarks.accuracy.libraries`."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.sparse import coo_array, csr_matrix
from threadpoolctl import threadpool_limits

from oneclass.flows.settings import RunSettings
from oneclass.models.base import Model
from oneclass.tasks.blend import choose_components
from oneclass.tasks.evaluate.ranking import rank_part_targets
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.stores.matrices import Part, SplitMatrices
from oneclass.tasks.train import train
from oneclass.tasks.tuning import record_pending_trial
from oneclass.tasks.tuning.auto import SearchData, SearchRequest, choose_settings

Scorer = Callable[[csr_matrix], np.ndarray]  # (users, items) histories to scores of the same shape


@dataclass
class Fit:
    """A library's fit, as `tasks.evaluate.ranking.rank_part_targets` wants a model."""

    name: str
    threads: int
    scorer: Scorer
    users_at_once: int = 1000

    def scores(self, histories: csr_matrix, *, users: None, score: str) -> np.ndarray:
        """float32 (block, items); the history's own items are left out by `rank`, whatever their scores."""
        return np.ascontiguousarray(self.scorer(histories), dtype=np.float32)


def implicit_als(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """Hu, Koren and Volinsky's loss."""
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(num_threads=threads, random_state=seed, **settings)
    with threadpool_limits(1, "blas"):  # as the library advises
        model.fit(train, show_progress=False)
    return lambda histories: model.recalculate_user(np.arange(histories.shape[0]), histories) @ model.item_factors.T


def irspack_ials(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """Both losses, `IALSPP` being that of Rendle et al. 2021."""
    from irspack import IALSRecommender

    model = IALSRecommender(train, n_threads=threads, random_seed=seed, **settings)
    model.start_learning()
    for _ in range(model.train_epochs):  # what `learn` does, but for a progress bar
        model.run_epoch()
    return model.get_score_cold_user


def irspack_ease(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """DenseSLIM is what irspack calls EASE."""
    from irspack import DenseSLIMRecommender

    return DenseSLIMRecommender(train, **settings).learn().get_score_cold_user


def irspack_edlae(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """EASE with a penalty that dropout puts on popular items."""
    from irspack.recommenders.edlae import EDLAERecommender

    return EDLAERecommender(train, **settings).learn().get_score_cold_user


def irspack_slim(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """The elastic net by coordinate descent, non-negative weights."""
    from irspack.recommenders.slim import SLIMRecommender

    return SLIMRecommender(train, n_threads=threads, **settings).learn().get_score_cold_user


def hpfrec(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """Full-batch coordinate ascent; an unseen user at a time."""
    from hpfrec import HPF

    model = HPF(
        ncores=threads,
        random_seed=seed + 1,
        stop_crit="maxiter",
        reindex=False,
        verbose=False,
        keep_data=False,
        allow_inconsistent_math=True,
        **settings,
    )
    model.fit(coo_array(train))

    def factors(items: np.ndarray) -> np.ndarray:
        counts = np.stack([items, np.ones_like(items)], axis=1)
        return model.predict_factors(counts, maxiter=100, random_seed=seed + 1)

    return lambda histories: np.stack([factors(row.indices) for row in histories]) @ model.Beta.T


def fastslim(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """The elastic net by coordinate descent on the items x items products, non-negative weights."""
    from fastslim import SLIM

    model = SLIM(n_threads=threads, **settings).fit(train)
    return lambda histories: model.predict(histories, exclude_seen=False)


def kindling(train: csr_matrix, threads: int, seed: int, *, ridge: float, **settings: Any) -> Scorer:
    """An engine that adds other signals to EASE; without times these are the last item of a user and popularity.

    Args:
        ridge: times the engine's own penalty, 20 edges / items.
    """
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    import pandas as pd
    from kindling import Engine

    edges, items = train.tocoo(), train.shape[1]
    ours = ridge * 20 * train.nnz / len(np.unique(train.indices))
    engine = Engine(retrieval_budget=items, random_state=seed, ease_lambda=ours, **settings)
    engine.fit(pd.DataFrame({"entity_id": edges.row, "item_id": edges.col}))

    def of_user(history: np.ndarray) -> np.ndarray:
        found = engine.recommend_for_items(history, items)
        scores = np.full(items, min((one.score for one in found), default=0) - 1)
        scores[[one.item_id for one in found]] = [one.score for one in found]
        return scores

    return lambda histories: np.stack([of_user(row.indices) for row in histories])


class Library(NamedTuple):
    """A library's model.

    Attributes:
        ours: the model of ours that it is held beside.
        fit: how it is fitted.
        settings: the tuned ones.
        space: where they are sought.
        start: at which a search begins, if not at `settings`.
    """

    ours: str
    fit: Callable[..., Scorer]
    settings: dict[str, Any]
    space: dict[str, BaseDistribution]
    start: dict[str, Any] | None = None


# Chosen by nDCG@100 of the validation users of ml-1m, seed 1, where they reach the figure beside each, S after it; N is
# how many settings were tried. hpfrec takes minutes a fit: its priors are its own defaults, its iterations of three.
LIBRARIES = {
    "implicit_als": Library(  # .4301, .9425, N = 14
        "wmf",
        implicit_als,
        {"factors": 256, "regularization": 65.0, "alpha": 7.7, "iterations": 16},
        {
            "factors": CategoricalDistribution((64, 128, 256, 512)),
            "iterations": IntDistribution(6, 30),
            "regularization": FloatDistribution(1, 300, log=True),
            "alpha": FloatDistribution(1, 40, log=True),
        },
    ),
    "irspack_ials": Library(  # .4324, .9431, N = 33, one of them of the loss ORIGINAL
        "wmf",
        irspack_ials,
        {
            "n_components": 256,
            "alpha0": 0.15,
            "reg": 0.01,
            "nu": 1.0,
            "nu_star": 1.0,
            "loss_type": "IALSPP",
            "train_epochs": 16,
        },
        {
            "n_components": CategoricalDistribution((64, 128, 256, 512)),
            "train_epochs": IntDistribution(6, 24),
            "alpha0": FloatDistribution(0.05, 0.5, log=True),
            "reg": FloatDistribution(3e-3, 3e-2, log=True),
            "nu": FloatDistribution(0.5, 1.25),
        },
    ),
    "irspack_ease": Library(  # .4197, .9267, N = 8
        "mrf_dense", irspack_ease, {"reg": 700.0}, {"reg": FloatDistribution(20, 5000, log=True)}
    ),
    "irspack_edlae": Library(  # .4258, .9229, N = 16
        "mrf_dense",
        irspack_edlae,
        {"reg": 244.9, "dropout_p": 0.4553},
        {"reg": FloatDistribution(1, 5000, log=True), "dropout_p": FloatDistribution(0.0, 0.9)},
        start={"reg": 300.0, "dropout_p": 0.3},
    ),
    "irspack_slim": Library(  # .4160, .9284, N = 18
        "slim",
        irspack_slim,
        {"alpha": 0.07, "l1_ratio": 0.0005},
        {"alpha": FloatDistribution(0.01, 0.3, log=True), "l1_ratio": FloatDistribution(5e-4, 0.1, log=True)},
    ),
    "fastslim": Library(  # not chosen: a fit there had not ended after 37 s CPU
        "slim",
        fastslim,
        {"lambd": 2.0, "beta": 200.0},
        {"lambd": FloatDistribution(0.1, 30, log=True), "beta": FloatDistribution(1, 2000, log=True)},
    ),
    "kindling": Library(  # .4223, .9359, N = 6; with its own settings .4006, with these rounded to four digits .3718
        "mrf_dense",
        kindling,
        {
            "ridge": 0.16162477560638372,
            "ease_denoise": 1.4406489868843162,
            "last_item_alpha": 5.718740867244332e-05,
            "cold_user_pop_prior": 6.046651452636795,
        },
        {
            "ridge": FloatDistribution(0.02, 3, log=True),
            "ease_denoise": FloatDistribution(0, 2),
            "last_item_alpha": FloatDistribution(0, 0.5),
            "cold_user_pop_prior": FloatDistribution(0, 20),
        },
        start={"ridge": 1.0, "ease_denoise": 0.0, "last_item_alpha": 0.25, "cold_user_pop_prior": 8.0},  # its own
    ),
    "hpfrec": Library(  # .3594, .9275, N = 3
        "hpf",
        hpfrec,
        {"k": 36, "a": 0.3, "a_prime": 0.3, "c": 0.3, "c_prime": 0.3, "maxiter": 150},
        {
            "k": IntDistribution(10, 100, log=True),
            "a": FloatDistribution(0.05, 2, log=True),
            "a_prime": FloatDistribution(0.1, 10, log=True),
            "c": FloatDistribution(0.05, 2, log=True),
            "c_prime": FloatDistribution(0.1, 10, log=True),
            "maxiter": IntDistribution(50, 400, log=True),
        },
    ),
}


STARTUP = 5  # trials before the sampler proposes any


def library_fit(name: str, settings: dict[str, Any], split: SplitMatrices, threads: int, seed: int) -> Fit:
    """One library's fit on the training users."""
    with threadpool_limits(threads):
        return Fit(name, threads, LIBRARIES[name].fit(split.train, threads, seed, **settings))


def evaluate_users(model: Any, part: Part, score: str = "score") -> dict[str, np.ndarray]:
    """Compute `metrics.user_metrics` for the users of a part."""
    return rank_part_targets(model, score, part).of_users


def search(name: str, split: SplitMatrices, trials: int, threads: int, seed: int) -> dict[str, Any]:
    """The best settings of some by the validation users' nDCG@100; the first are `Library.start`. Prints every
    trial.
    """
    library, tried = LIBRARIES[name], []
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial(library.start or library.settings)
    for number in range(1, trials + 1):
        trial, began = study.ask(library.space), time.process_time()
        settings = library.settings | trial.params
        of_users = evaluate_users(library_fit(name, settings, split, threads, seed), split.parts["validation"])
        value = of_users["ndcg@100"].mean()
        study.tell(trial, value)
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


RUN = "benchmark"


def fitted(run: RunSettings, names: Sequence[str], split: SplitMatrices) -> dict[str, Model]:
    """Each model, and `blend` of them where one is better than its best member on validation users; prints settings.

    A model has the settings that the data set's file has for it, or those of the search that a run makes.
    """
    home, digest, day = run.home, matrices.store_split(run.home, split), date.today()
    log = SearchData(home, split.protocol, digest, split.train, day, run.seed, trial=record_pending_trial)
    settings, digests = {}, {}
    keep = partial(train, home, RUN, protocol=split.protocol, matrices_digest=digest, seed=run.seed)
    for name in names:
        settled = choose_settings(log, name, run.models[name], SearchRequest("auto", tuned=run.dataset.models))()
        print(f"{name}: {settled.origin}, {settled.reason}", flush=True)
        settings[name] = settled.settings
        digests[name] = keep(model=name, settings=settled.settings).digest
    found = choose_components(
        home, RUN, protocol=split.protocol, judged=[(digest, digests)], settings=settings,
        seed=run.seed, day=day,
    )  # fmt: skip
    if found is None:
        print("blend: not better than its best member on validation users", flush=True)
    else:
        print("blend: " + " + ".join(f"{one.weight:g} {one.model}" for one in found.components), flush=True)
        digests["blend"] = keep(model="blend", settings=found).digest
    return {name: fits.load_fit(home, name, one) for name, one in digests.items()}
