"""A cache of what a fitted model computes again and again: per-model constants, and the last block of histories."""

from collections.abc import Callable
from typing import Any

from scipy.sparse import csr_matrix


class InferenceCache:
    """Per-model cache. Thread-safe for fitted models."""

    _cache: dict[str, Any] | None = None  # None in a fit, whose arrays may still change

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is cached out of copies and pickles."""
        return {**self.__dict__, "_cache": None if self._cache is None else {}}

    def compute_once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return `make()`, which does not depend on the users: computed once for a fitted model, each time in a fit."""
        if self._cache is None:
            return make()
        if name not in self._cache:
            self._cache[name] = make()
        return self._cache[name]

    def compute_once_for_block(self, name: str, histories: csr_matrix, make: Callable[[], Any]) -> Any:
        """Return `make()`, which a fitted model caches for the last block of histories."""
        if self._cache is None:
            return make()
        ages = getattr(histories, "event_ages", None)
        order = getattr(histories, "recency_ranks", None), *((ages.starts, ages.days) if ages else ())
        arrays = histories.indptr, histories.indices, histories.data, *order
        key = tuple(array.tobytes() for array in arrays if array is not None)
        last_key, value = self._cache.get(name, (None, None))
        if last_key != key:
            self._cache[name] = key, (value := make())
        return value
