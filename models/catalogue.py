"""Every model by its name."""

from pathlib import Path

from models.base import Model
from models.binary_matrix import BinaryMatrix
from models.bpr import BprPopularity, BprUniform
from models.cdae import CDAE
from models.hpf import HPF
from models.mrf_dense import MrfDense
from models.mrf_sparse import MrfSparse
from models.mult_dae import MultDAE
from models.mult_vae import MultVAE
from models.paired_symbols import PairedSymbols
from models.popularity import Popularity
from models.random_graph import RandomGraph
from models.slim import Slim
from models.wmf import Wmf

MODELS: dict[str, type[Model]] = {
    model.name: model
    for model in (
        Popularity,
        BprUniform,
        BprPopularity,
        MrfDense,
        MrfSparse,
        Slim,
        Wmf,
        RandomGraph,
        PairedSymbols,
        BinaryMatrix,
        HPF,
        CDAE,
        MultDAE,
        MultVAE,
    )
}


def load(name: str, folder: Path, *, threads: int = 1) -> Model:
    """The fitted model that was saved in the folder.

    Raises:
        KeyError: no model has that name.
        ValueError: the folder holds another model.
    """
    return MODELS[name].load(folder, threads=threads)
