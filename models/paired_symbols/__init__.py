"""Paired symbols, the alternative to the bilinear softmax.

`model` has the bound and the passes; `symbols` and `posterior` have the updates, `kernels` and `edges` their loops.
"""

from oneclass.models.paired_symbols.model import PairedSymbols

__all__ = ["PairedSymbols"]
