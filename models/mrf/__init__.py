"""Markov random fields (Steck 2019), dense and sparse.

`dense` is eq. 4, `sparse` is section 3 with its pattern, blocks and kernels.
"""

from models.mrf.dense import MrfDense
from models.mrf.sparse import MrfSparse

__all__ = ["MrfDense", "MrfSparse"]
