"""Other libraries' models: each is fitted on the training users and folds unseen users in by its own means."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_matrix
from threadpoolctl import threadpool_limits

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
