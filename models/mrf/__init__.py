"""Markov random fields (Steck 2019), dense and sparse.

`dense` is eq. 4, `sparse` is section 3 with its pattern, blocks and kernels.
"""

from oneclass.models.mrf.dense import MRFDense
from oneclass.models.mrf.sparse import MRFSparse

__all__ = ["MRFDense", "MRFSparse"]
