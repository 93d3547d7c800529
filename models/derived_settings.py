"""Settings that depend on the log: derived from its size, searched around what is derived, or reading its order."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from oneclass.models.settings import Choice, ModelSettings, NumericRange, SearchSpace, SettingsT

SHORT, LONG = 12.0, 35.0  # likes of a mean user
FEW, MANY = 300.0, 3000.0  # items


@dataclass(frozen=True)
class RelativeRange(NumericRange):
    """Multiples of the value that a setting's rule derives from the data (`ModelSettings.resolve`), on a log scale."""

    log: bool = True


def apply_trial(settings: SettingsT, values: Mapping[str, Any], interactions: csr_matrix) -> SettingsT:
    """Replace settings by values of the search space, for a fit on this matrix.

    Args:
        values: by setting; for a `RelativeRange` the multiple of the value that the rule derives from the matrix and
            from the settings before it in the search space. Counts are rounded, to at least one.

    Raises:
        ValueError: the settings are inconsistent.
    """
    multiples = [name for name, range_ in settings.search_space.items() if isinstance(range_, RelativeRange)]
    tried = settings.model_copy(update={**values, **{name: None for name in multiples if name in values}})
    for name in multiples:
        if name in values and (by_rule := getattr(tried.resolve(interactions), name)) is not None:
            value = values[name] * by_rule
            tried = tried.model_copy(update={name: max(1, round(value)) if isinstance(by_rule, int) else value})
    return type(settings)(**tried.model_dump())


class RecencySettings(ModelSettings):
    """Settings of a model that weighs the entries of a history by recency in its scores, not in its fit."""

    exponents: ClassVar = (0.0, 0.2, 0.4, 0.7, 1.0)
    recency_search_space: ClassVar[SearchSpace] = {"recency_exponent": Choice(exponents)}

    recency_exponent: float = Field(
        0.0,
        ge=0,
        le=4,
        description="p: an item of the history after which the user came to like n others weighs (1 + n)^-p in the "
        "scores; 0 weighs all alike. Above 0, a run keeps the order of likes with its matrices.",
    )

    @property
    def reads_order(self) -> bool:
        """Whether scores depend on the order in which a user came to like the items of a history."""
        return self.recency_exponent > 0


def mean_degree(matrix: csr_matrix) -> float:
    """How many entries the rows have on average, of those that have any."""
    return matrix.nnz / max(1, np.count_nonzero(np.diff(matrix.indptr)))


def interpolate_by_history(likes: float, short: float, long: float) -> float:
    """Return a setting for logs with so many likes of a mean user.

    Args:
        short, long: the setting where these are SHORT or fewer, and LONG or more; between, its logarithm is linear in
            that of the likes.
    """
    return _interpolate(likes, (SHORT, LONG), short, long)


def interpolate_by_items(items: int, few: float, many: float) -> float:
    """Return a setting for logs with so many items; `few` holds up to FEW of them, `many` from MANY on."""
    return _interpolate(items, (FEW, MANY), few, many)


def _interpolate(at: float, bounds: tuple[float, float], low: float, high: float) -> float:
    share = float(np.interp(np.log(at), np.log(bounds), [0, 1]))
    return low ** (1 - share) * high**share
