"""One-class collaborative filtering: the public interface.

import oneclass

shop = oneclass.load("var", "shop")             # what a run published, without Prefect
shop.recommend(["sku-1", "sku-9"], n=20)

model = oneclass.WMF(factors=64, seed=1).fit(frame)  # any estimator, on a frame, Interactions or a CSR matrix
model.recommend(users=["ann"], n=20)
oneclass.evaluate([model, oneclass.Popularity()], frame).metrics  # a run's tables, in memory

Nothing is imported before it is used.
"""

import ast
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oneclass.evaluation import Evaluation, Tuning, evaluate, tune
    from oneclass.interactions import Interactions
    from oneclass.models.autoencoders.networks import CDAE, MultDAE, MultVAE
    from oneclass.models.base import Model
    from oneclass.models.binary_matrix.model import BinaryMatrix
    from oneclass.models.blend.model import Blend
    from oneclass.models.bpr.model import BPRPopularity, BPRUniform
    from oneclass.models.evaluation.off_policy import OffPolicyEstimate, OverlapTooSmallError, off_policy
    from oneclass.models.graph_filter.model import GraphFilter
    from oneclass.models.hpf.model import HPF
    from oneclass.models.item_knn import ItemKNN, RP3beta
    from oneclass.models.mrf.dense import EASE, MRFDense
    from oneclass.models.mrf.sparse import MRFSparse
    from oneclass.models.own_model import OwnModel
    from oneclass.models.paired_symbols.model import PairedSymbols
    from oneclass.models.popularity import Popularity
    from oneclass.models.random_graph.model import RandomGraph
    from oneclass.models.repeat.mixture import RepeatMixture
    from oneclass.models.repeat.model import Repeat
    from oneclass.models.sansa.model import SANSA
    from oneclass.models.settings import NotFittedError
    from oneclass.models.slim.model import SLIM
    from oneclass.models.wmf.model import WMF
    from oneclass.splits import Split, split_last, split_share, split_times
    from oneclass.tasks.metric_registry import UserRanks
    from oneclass.tasks.recommend import Recommender, load

__version__ = version("oneclass")
__all__ = [
    "CDAE",
    "EASE",
    "HPF",
    "SANSA",
    "SLIM",
    "WMF",
    "BPRPopularity",
    "BPRUniform",
    "BinaryMatrix",
    "Blend",
    "Evaluation",
    "GraphFilter",
    "Interactions",
    "ItemKNN",
    "MRFDense",
    "MRFSparse",
    "Model",
    "MultDAE",
    "MultVAE",
    "NotFittedError",
    "OffPolicyEstimate",
    "OverlapTooSmallError",
    "OwnModel",
    "PairedSymbols",
    "Popularity",
    "RP3beta",
    "RandomGraph",
    "Recommender",
    "Repeat",
    "RepeatMixture",
    "Split",
    "Tuning",
    "UserRanks",
    "evaluate",
    "load",
    "off_policy",
    "split_last",
    "split_share",
    "split_times",
    "tune",
]


@cache
def _find_modules() -> dict[str, str]:
    """Return the module of each name, as the imports for type checkers above state it."""
    [block] = (node for node in ast.parse(Path(__file__).read_text("utf-8")).body if isinstance(node, ast.If))
    imports = (node for node in block.body if isinstance(node, ast.ImportFrom))
    return {name.name: str(node.module) for node in imports for name in node.names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'oneclass' has no attribute {name!r}")
    if (module := _find_modules()[name]).startswith("oneclass.models."):
        import_module("oneclass.interactions")  # by which models read tables of ids
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
