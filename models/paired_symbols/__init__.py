"""Paired symbols, the alternative to the bilinear softmax.

`model` has the bound and the passes, `posterior` the updates, and `kernels` their loops.
"""

from oneclass.models.paired_symbols.model import PairedSymbols

__all__ = ["PairedSymbols"]
