"""What a loaded model keeps from one block of scores to the next; a fit keeps nothing."""

from collections.abc import Callable
from typing import Any

from scipy.sparse import csr_matrix


class Keeping:
    """The part of a model that keeps; of a loaded one several threads may ask at once."""

    _kept: dict[str, Any] | None = None  # None in a fit, whose arrays may still change

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """`make()`, what every block of scores needs of all items: once for a loaded model, anew each time in a fit."""
        if self._kept is None:
            return make()
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def kept_of_block(self, name: str, histories: csr_matrix, make: Callable[[], Any]) -> Any:
        """`make()`, kept by a loaded model for the block that was asked for last."""
        if self._kept is None:
            return make()
        arrays = (getattr(histories, name, None) for name in ("indptr", "indices", "data", "places"))
        asked = tuple(array.tobytes() for array in arrays if array is not None)
        last, found = self._kept.get(name, (None, None))
        if last != asked:
            self._kept[name] = asked, (found := make())
        return found
