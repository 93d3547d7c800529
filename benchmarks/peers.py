"""Other libraries' models behind one interface, with the settings of a first fit and the spaces of a search.

A peer is fitted by `fit(train, threads, seed, **settings)`, which returns a function from histories to scores. The
libraries are imported when a model is fitted, so that only those that are used have to be there:

    pip install implicit irspack hpfrec rectools lenskit
    pip install --no-deps -c constraints.txt numpy attrs    # RecTools pins older versions of both
"""

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

Scorer = Callable[[Any], np.ndarray]  # of histories, or of rows of the training users if it folds none in
FACTORS = CategoricalDistribution((64, 128, 256, 512))


def fit_implicit_als(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(num_threads=threads, random_state=seed, **settings)
    with threadpool_limits(1, "blas"):  # as the library advises
        model.fit(train, show_progress=False)
    return lambda histories: model.recalculate_user(np.arange(histories.shape[0]), histories) @ model.item_factors.T


def fit_implicit_bpr(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """Score training users by their rows: implicit folds no history in."""
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(num_threads=threads, random_state=seed, **settings)
    model.fit(train, show_progress=False)
    return lambda rows: model.user_factors[rows] @ model.item_factors.T


def fit_implicit_knn(train: csr_matrix, threads: int, seed: int, *, kind: str, **settings: Any) -> Scorer:
    from implicit import nearest_neighbours

    model = getattr(nearest_neighbours, kind)(num_threads=threads, **settings)
    model.fit(csr_matrix(train, dtype=np.float64), show_progress=False)
    return lambda histories: (histories @ model.similarity).toarray()


def fit_irspack(train: csr_matrix, threads: int, seed: int, *, kind: str, **settings: Any) -> Scorer:
    from irspack import recommenders

    own = {} if kind == "DenseSLIMRecommender" else {"n_threads": threads}
    model = getattr(recommenders, kind)(csr_matrix(train, dtype=np.float64), **own, **settings)
    if kind != "IALSRecommender":
        return model.learn().get_score_cold_user
    model.start_learning()
    for _ in range(model.train_epochs):  # as in `learn`, without its progress bar
        model.run_epoch()
    return model.get_score_cold_user


def fit_hpfrec(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """Score training users by their rows."""
    import pandas as pd
    from hpfrec import HPF

    edges = train.tocoo()
    model = HPF(ncores=threads, random_seed=seed, reindex=False, verbose=False, stop_crit="maxiter", **settings)
    model.fit(pd.DataFrame({"UserId": edges.row, "ItemId": edges.col, "Count": edges.data}))
    return lambda rows: model.Theta[rows] @ model.Beta.T


def fit_rectools_ease(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    import pandas as pd
    from rectools import Columns
    from rectools.dataset import Dataset, IdMap, Interactions
    from rectools.models import EASEModel

    edges = train.tocoo()
    frame = pd.DataFrame({Columns.User: edges.row, Columns.Item: edges.col, Columns.Weight: 1.0})
    frame[Columns.Datetime] = pd.Timestamp(0)
    users, items = (IdMap.from_values(np.arange(size)) for size in train.shape)  # ids are the rows and columns
    model = EASEModel(recommend_n_threads=threads, recommend_use_gpu_ranking=False, **settings)
    model.fit(Dataset(users, items, Interactions(frame)))
    return lambda histories: histories @ model.weight


def fit_lenskit_als(train: csr_matrix, threads: int, seed: int, **settings: Any) -> Scorer:
    """Score one history at a time; an item without an edge comes last."""
    import pandas as pd
    from lenskit.als import ImplicitMFScorer
    from lenskit.data import ItemList, RecQuery, from_interactions_df

    model = ImplicitMFScorer(**settings)
    edges = train.tocoo()
    model.train(from_interactions_df(pd.DataFrame({"user_id": edges.row, "item_id": edges.col})))
    every = ItemList(item_ids=np.arange(train.shape[1]))

    def score_history(history: np.ndarray) -> np.ndarray:
        scores = model(RecQuery(user_items=ItemList(item_ids=history)), every).scores()
        return np.nan_to_num(scores, nan=-1e9)

    return lambda histories: np.stack([score_history(row.indices) for row in histories])


class Peer(NamedTuple):
    """A library's model: its fit, the settings of a first trial, which a search keeps if they have no range, and it."""

    fit: Callable[..., Scorer]
    settings: dict[str, Any]
    space: dict[str, BaseDistribution]


def search_log(low: float, high: float) -> BaseDistribution:
    """Return the range of a setting whose order of magnitude matters."""
    return IntDistribution(low, high, log=True) if isinstance(low, int) else FloatDistribution(low, high, log=True)


# First settings were chosen on validation users of ml-1m where the libraries' own are far from the best.
PEERS = {
    "implicit_als": Peer(
        fit_implicit_als, {"factors": 256, "regularization": 65.0, "alpha": 7.7, "iterations": 16},
        {"factors": FACTORS, "iterations": IntDistribution(6, 30), "regularization": search_log(1.0, 300.0),
         "alpha": search_log(1.0, 40.0)}),
    "implicit_bm25": Peer(
        fit_implicit_knn, {"kind": "BM25Recommender", "K": 200, "K1": 1.2, "B": 0.75},
        {"K": search_log(20, 1000), "K1": search_log(0.1, 100.0), "B": FloatDistribution(0.0, 1.0)}),
    "irspack_ials": Peer(
        fit_irspack, {"kind": "IALSRecommender", "n_components": 256, "alpha0": 0.15, "reg": 0.01, "nu": 1.0,
                      "nu_star": 1.0, "loss_type": "IALSPP", "train_epochs": 16},
        {"n_components": FACTORS, "train_epochs": IntDistribution(6, 24), "alpha0": search_log(0.05, 0.5),
         "reg": search_log(3e-3, 3e-2), "nu": FloatDistribution(0.5, 1.25)}),
    "irspack_ease": Peer(fit_irspack, {"kind": "DenseSLIMRecommender", "reg": 700.0}, {"reg": search_log(20.0, 5e3)}),
    "irspack_slim": Peer(
        fit_irspack, {"kind": "SLIMRecommender", "alpha": 0.07, "l1_ratio": 0.0005},
        {"alpha": search_log(0.01, 0.3), "l1_ratio": search_log(5e-4, 0.1)}),
    "irspack_rp3beta": Peer(
        fit_irspack, {"kind": "RP3betaRecommender", "alpha": 1.0, "beta": 0.6, "top_k": 200},
        {"alpha": FloatDistribution(0.3, 2.0), "beta": FloatDistribution(0.0, 1.2), "top_k": search_log(20, 1000)}),
    "rectools_ease": Peer(fit_rectools_ease, {"regularization": 700.0}, {"regularization": search_log(20.0, 5000.0)}),
    "lenskit_als": Peer(
        fit_lenskit_als, {"embedding_size": 64, "epochs": 10, "regularization": 0.1, "weight": 40.0},
        {"embedding_size": CategoricalDistribution((32, 64, 128, 256)), "epochs": IntDistribution(5, 20),
         "regularization": search_log(0.01, 300.0), "weight": search_log(1.0, 100.0)}),
}  # fmt: skip


def is_installed(name: str) -> bool:
    """Tell whether the library of a peer can be imported; say so if it cannot."""
    library = name.split("_")[0]
    if importlib.util.find_spec(library) is None:
        print(f"{name}: left out, {library} is not installed", flush=True)
        return False
    return True
