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
    from oneclass.evaluation import Evaluation as Evaluation
    from oneclass.evaluation import Tuning as Tuning
    from oneclass.evaluation import evaluate as evaluate
    from oneclass.evaluation import tune as tune
    from oneclass.interactions import Interactions as Interactions
    from oneclass.models.autoencoders.networks import CDAE as CDAE
    from oneclass.models.autoencoders.networks import MultDAE as MultDAE
    from oneclass.models.autoencoders.networks import MultVAE as MultVAE
    from oneclass.models.base import Model as Model
    from oneclass.models.binary_matrix.model import BinaryMatrix as BinaryMatrix
    from oneclass.models.blend.model import Blend as Blend
    from oneclass.models.bpr.model import BPRPopularity as BPRPopularity
    from oneclass.models.bpr.model import BPRUniform as BPRUniform
    from oneclass.models.directed.slist import SLIST as SLIST
    from oneclass.models.directed.transitions import Transitions as Transitions
    from oneclass.models.evaluation.off_policy import OffPolicyEstimate as OffPolicyEstimate
    from oneclass.models.evaluation.off_policy import OverlapTooSmallError as OverlapTooSmallError
    from oneclass.models.evaluation.off_policy import off_policy as off_policy
    from oneclass.models.graph_filter.model import GraphFilter as GraphFilter
    from oneclass.models.hpf.model import HPF as HPF
    from oneclass.models.item_knn import ItemKNN as ItemKNN
    from oneclass.models.item_knn import RP3beta as RP3beta
    from oneclass.models.mrf.dense import EASE as EASE
    from oneclass.models.mrf.dense import MRFDense as MRFDense
    from oneclass.models.mrf.sparse import MRFSparse as MRFSparse
    from oneclass.models.own_model import OwnModel as OwnModel
    from oneclass.models.paired_symbols.model import PairedSymbols as PairedSymbols
    from oneclass.models.popularity import Popularity as Popularity
    from oneclass.models.random_graph.model import RandomGraph as RandomGraph
    from oneclass.models.repeat.mixture import RepeatMixture as RepeatMixture
    from oneclass.models.repeat.model import Repeat as Repeat
    from oneclass.models.sansa.model import SANSA as SANSA
    from oneclass.models.settings import NotFittedError as NotFittedError
    from oneclass.models.slim.model import SLIM as SLIM
    from oneclass.models.wmf.model import WMF as WMF
    from oneclass.splits import Split as Split
    from oneclass.tasks.evaluate.own_metrics import UserRanks as UserRanks
    from oneclass.tasks.recommend import Recommender as Recommender
    from oneclass.tasks.recommend import load as load

__version__ = version("oneclass")


@cache
def _find_modules() -> dict[str, str]:
    """Return the module of each name, as the imports for type checkers above state it."""
    [block] = (node for node in ast.parse(Path(__file__).read_text("utf-8")).body if isinstance(node, ast.If))
    imports = (node for node in block.body if isinstance(node, ast.ImportFrom))
    return {name.name: str(node.module) for node in imports for name in node.names}


def __getattr__(name: str) -> Any:
    if name not in _find_modules():
        raise AttributeError(f"module 'oneclass' has no attribute {name!r}")
    if (module := _find_modules()[name]).startswith("oneclass.models."):
        import_module("oneclass.interactions")  # by which models read tables of ids
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return [*_find_modules(), "__version__"]
