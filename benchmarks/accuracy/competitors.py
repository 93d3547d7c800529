"""Fit other libraries' models behind one interface, and define the spaces of their settings."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.sparse import coo_array, csr_matrix
from threadpoolctl import threadpool_limits

from oneclass.tasks.evaluate.ranking import rank_part_targets
from oneclass.tasks.stores.matrices import Part

Scorer = Callable[[csr_matrix], np.ndarray]  # (users, items) histories to scores of the same shape


@dataclass
class Fit:
    """A library's fit with the methods of a model that `tasks.evaluate.ranking.rank_part_targets` calls."""

    name: str
    threads: int
    scorer: Scorer
    users_at_once: int = 1000
    score_names: tuple[str, ...] = ("score",)
    scores_by_tiles: bool = False

    def scores(self, histories: csr_matrix, *, users: None, score: str) -> np.ndarray:
        """Compute float32 (block, items); the ranking leaves out the history's items, whatever their scores."""
        return np.ascontiguousarray(self.scorer(histories), dtype=np.float32)

    def iterate_scores(self, histories: csr_matrix, *, users: None) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the only score."""
        yield "score", self.scores(histories, users=users, score="score")


def fit_implicit_als(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """Hu, Koren and Volinsky's loss."""
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(num_threads=threads, random_state=seed, **settings)
    with threadpool_limits(1, "blas"):  # as the library advises
        model.fit(train, show_progress=False)
    return lambda histories: model.recalculate_user(np.arange(histories.shape[0]), histories) @ model.item_factors.T


def fit_irspack_ials(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """Both losses, `IALSPP` being that of Rendle et al. 2021."""
    from irspack import IALSRecommender

    model = IALSRecommender(train, n_threads=threads, random_seed=seed, **settings)
    model.start_learning()
    for _ in range(model.train_epochs):  # as in `learn`, without its progress bar
        model.run_epoch()
    return model.get_score_cold_user


def fit_irspack_ease(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """EASE, which irspack calls DenseSLIM."""
    from irspack import DenseSLIMRecommender

    return DenseSLIMRecommender(train, **settings).learn().get_score_cold_user


def fit_irspack_edlae(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """EASE with a penalty that dropout puts on popular items."""
    from irspack.recommenders.edlae import EDLAERecommender

    return EDLAERecommender(train, **settings).learn().get_score_cold_user


def fit_irspack_slim(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """The elastic net by coordinate descent, non-negative weights."""
    from irspack.recommenders.slim import SLIMRecommender

    return SLIMRecommender(train, n_threads=threads, **settings).learn().get_score_cold_user


def fit_hpfrec(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
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

    def fold_in(items: np.ndarray) -> np.ndarray:
        counts = np.stack([items, np.ones_like(items)], axis=1)
        return model.predict_factors(counts, maxiter=100, random_seed=seed + 1)

    return lambda histories: np.stack([fold_in(row.indices) for row in histories]) @ model.Beta.T


def fit_fastslim(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """The elastic net by coordinate descent on the items x items products, non-negative weights."""
    from fastslim import SLIM

    model = SLIM(n_threads=threads, **settings).fit(train)
    return lambda histories: model.predict(histories, exclude_seen=False)


def fit_kindling(train: csr_matrix, threads: int, seed: int, *, ridge: float, **settings: Any) -> Scorer:
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

    def score_history(history: np.ndarray) -> np.ndarray:
        items_found = engine.recommend_for_items(history, items)
        scores = np.full(items, min((one.score for one in items_found), default=0) - 1)
        scores[[one.item_id for one in items_found]] = [one.score for one in items_found]
        return scores

    return lambda histories: np.stack([score_history(row.indices) for row in histories])


def fit_implicit_bm25(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """The nearest items by BM25."""
    from implicit.nearest_neighbours import BM25Recommender

    model = BM25Recommender(num_threads=threads, **settings)
    model.fit(train, show_progress=False)
    return lambda histories: (histories @ model.similarity).toarray()


def fit_irspack_rp3beta(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """Random walks of three steps, popular items discounted."""
    from irspack import RP3betaRecommender

    return RP3betaRecommender(train, n_threads=threads, **settings).learn().get_score_cold_user


def build_rectools_dataset(train: csr_matrix) -> Any:
    """Build a data set whose internal ids are the rows and columns of the matrix."""
    import pandas as pd
    from rectools import Columns
    from rectools.dataset import Dataset, IdMap, Interactions

    edges = train.tocoo()
    frame = pd.DataFrame({Columns.User: edges.row, Columns.Item: edges.col, Columns.Weight: 1.0})
    frame[Columns.Datetime] = pd.Timestamp(0)
    users, items = (IdMap.from_values(np.arange(size)) for size in train.shape)
    return Dataset(users, items, Interactions(frame))


def fit_rectools_ease(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """The ridge regression of each item on the others."""
    from rectools.models import EASEModel

    model = EASEModel(recommend_n_threads=threads, recommend_use_gpu_ranking=False, **settings)
    model.fit(build_rectools_dataset(train))
    return lambda histories: histories @ model.weight


def fit_rectools_pure_svd(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """The truncated singular value decomposition; an unseen history is projected on the items' singular vectors."""
    from rectools.models import PureSVDModel

    model = PureSVDModel(random_state=seed, **settings)
    model.fit(build_rectools_dataset(train))
    vectors = model.item_factors / np.linalg.norm(model.item_factors, axis=0)
    return lambda histories: (histories @ vectors) @ vectors.T


def train_lenskit(model: Any, train: csr_matrix) -> Scorer:
    """Train a LensKit component, which scores one history at a time."""
    import pandas as pd
    from lenskit.data import ItemList, RecQuery, from_interactions_df

    edges = train.tocoo()
    model.train(from_interactions_df(pd.DataFrame({"user_id": edges.row, "item_id": edges.col})))
    every = ItemList(item_ids=np.arange(train.shape[1]))

    def score_history(history: np.ndarray) -> np.ndarray:
        scores = model(RecQuery(user_items=ItemList(item_ids=history)), every).scores()
        return np.nan_to_num(scores, nan=-1e9)  # an item without an edge or a neighbour has no score

    return lambda histories: np.stack([score_history(row.indices) for row in histories])


def fit_lenskit_als(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """Hu, Koren and Volinsky's loss."""
    from lenskit.als import ImplicitMFScorer

    return train_lenskit(ImplicitMFScorer(**settings), train)


def fit_lenskit_item_knn(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """The nearest items by cosine."""
    from lenskit.knn import ItemKNNScorer

    return train_lenskit(ItemKNNScorer(feedback="implicit", **settings), train)


class Library(NamedTuple):
    """A library's model.

    Attributes:
        ours: the model of ours of the same kind.
        fit: fits it; its docstring describes the model.
        settings: of a fit without a search, and of a search's first trial.
        space: of the search.
    """

    ours: str
    fit: Callable[..., Scorer]
    settings: dict[str, Any]
    space: dict[str, BaseDistribution]


# Settings are chosen by nDCG@100 of the validation users of ml-1m, seed 1. Comments give nDCG@100 and S there, and the
# number N of settings tried. hpfrec takes minutes a fit: its priors are its own defaults, its iterations the best of 3.
LIBRARIES = {
    "implicit_als": Library(  # .4301, .9425, N = 14
        "wmf",
        fit_implicit_als,
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
        fit_irspack_ials,
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
        "mrf_dense", fit_irspack_ease, {"reg": 700.0}, {"reg": FloatDistribution(20, 5000, log=True)}
    ),
    "irspack_edlae": Library(  # .4258, .9229, N = 16
        "mrf_dense",
        fit_irspack_edlae,
        {"reg": 244.9, "dropout_p": 0.4553},
        {"reg": FloatDistribution(1, 5000, log=True), "dropout_p": FloatDistribution(0.0, 0.9)},
    ),
    "irspack_slim": Library(  # .4160, .9284, N = 18
        "slim",
        fit_irspack_slim,
        {"alpha": 0.07, "l1_ratio": 0.0005},
        {"alpha": FloatDistribution(0.01, 0.3, log=True), "l1_ratio": FloatDistribution(5e-4, 0.1, log=True)},
    ),
    "fastslim": Library(  # not chosen: a fit there had not ended after 37 s CPU
        "slim",
        fit_fastslim,
        {"lambd": 2.0, "beta": 200.0},
        {"lambd": FloatDistribution(0.1, 30, log=True), "beta": FloatDistribution(1, 2000, log=True)},
    ),
    "kindling": Library(  # .4223, .9359, N = 6; with its own settings .4006, with these rounded to four digits .3718
        "mrf_dense",
        fit_kindling,
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
    ),
    "implicit_bm25": Library(  # not chosen
        "item_knn",
        fit_implicit_bm25,
        {"K": 200, "K1": 1.2, "B": 0.75},
        {
            "K": IntDistribution(20, 1000, log=True),
            "K1": FloatDistribution(0.1, 100, log=True),
            "B": FloatDistribution(0.0, 1.0),
        },
    ),
    "irspack_rp3beta": Library(  # not chosen
        "item_knn",
        fit_irspack_rp3beta,
        {"alpha": 1.0, "beta": 0.6, "top_k": 200},
        {
            "alpha": FloatDistribution(0.3, 2.0),
            "beta": FloatDistribution(0.0, 1.2),
            "top_k": IntDistribution(20, 1000, log=True),
        },
    ),
    "rectools_ease": Library(  # not chosen: irspack's setting of the same model
        "mrf_dense",
        fit_rectools_ease,
        {"regularization": 700.0},
        {"regularization": FloatDistribution(20, 5000, log=True)},
    ),
    "rectools_pure_svd": Library(  # not chosen
        "wmf", fit_rectools_pure_svd, {"factors": 64}, {"factors": IntDistribution(8, 256, log=True)}
    ),
    "lenskit_als": Library(  # not chosen: its own settings
        "wmf",
        fit_lenskit_als,
        {"embedding_size": 64, "epochs": 10, "regularization": 0.1, "weight": 40.0},
        {
            "embedding_size": CategoricalDistribution((32, 64, 128, 256)),
            "epochs": IntDistribution(5, 20),
            "regularization": FloatDistribution(0.01, 300, log=True),
            "weight": FloatDistribution(1, 100, log=True),
        },
    ),
    "lenskit_item_knn": Library(  # not chosen
        "item_knn",
        fit_lenskit_item_knn,
        {"max_nbrs": 100, "save_nbrs": None},
        {"max_nbrs": IntDistribution(10, 1000, log=True)},
    ),
    "hpfrec": Library(  # .3594, .9275, N = 3
        "hpf",
        fit_hpfrec,
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


def fit_library(name: str, settings: dict[str, Any], train: csr_matrix, threads: int, seed: int) -> Fit:
    """Fit a library's model on the training edges."""
    with threadpool_limits(threads):
        return Fit(name, threads, LIBRARIES[name].fit(train, threads, seed, **settings))


def evaluate_users(model: Any, part: Part, score: str = "score") -> dict[str, np.ndarray]:
    """Compute the ranking metrics of each user of a part."""
    return rank_part_targets(model, score, part).of_users
