"""Every model by its name."""

from pathlib import Path

from models.autoencoders.cdae import CDAE
from models.autoencoders.mult_dae import MultDAE
from models.autoencoders.mult_vae import MultVAE
from models.base import Model
from models.binary_matrix.model import BinaryMatrix
from models.blend.model import Blend
from models.bpr.model import BPRPopularity, BPRUniform
from models.graph_filter.model import GraphFilter
from models.hpf.model import HPF
from models.mrf.dense import MRFDense
from models.mrf.sparse import MRFSparse
from models.paired_symbols.model import PairedSymbols
from models.popularity import Popularity
from models.random_graph.model import RandomGraph
from models.slim.model import SLIM
from models.wmf.model import WMF

MODELS: dict[str, type[Model]] = {
    model.name: model
    for model in (
        Popularity,
        BPRUniform,
        BPRPopularity,
        MRFDense,
        MRFSparse,
        SLIM,
        WMF,
        GraphFilter,
        RandomGraph,
        PairedSymbols,
        BinaryMatrix,
        HPF,
        CDAE,
        MultDAE,
        MultVAE,
        Blend,
    )
}


def load(name: str, folder: Path, *, threads: int = 1) -> Model:
    """The fitted model that was saved in the folder.

    Raises:
        KeyError: no model has that name.
        ValueError: the folder holds another model.
    """
    return MODELS[name].load(folder, threads=threads)
