"""Values of a search space's ranges: as Optuna draws them, near a given one, and half way to a draw."""

import math
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from models.search_space import Choice, Multiple, Range


def distribution(range_: Range) -> BaseDistribution:
    if isinstance(range_, Choice):
        return CategoricalDistribution(range_.values)
    if isinstance(range_, Multiple):
        range_ = range_.span
    whole = isinstance(range_.low, int) and isinstance(range_.high, int)
    return (IntDistribution if whole else FloatDistribution)(range_.low, range_.high, log=range_.log)


def nearest(range_: Range, value: Any) -> Any:
    """The value itself where the search space holds it, else one of the space that stands for it."""
    if isinstance(range_, Multiple):
        range_ = range_.span
    if isinstance(range_, Choice):
        return value if value in range_.values else range_.values[0]
    if value is None:
        middle = math.sqrt(range_.low * range_.high) if range_.log else (range_.low + range_.high) / 2
        return round(middle) if isinstance(range_.low, int) and isinstance(range_.high, int) else middle
    return min(max(value, range_.low), range_.high)


def between(range_: Range, value: Any, generator: np.random.Generator) -> Any:
    """Half way from a value to a draw from its range; of a choice, the value or a draw."""
    if isinstance(range_, Choice):
        return value if generator.random() < 0.5 else range_.values[generator.integers(len(range_.values))]
    if isinstance(range_, Multiple):
        range_ = range_.span
    into, back = (math.log, math.exp) if range_.log else (float, float)
    half_way = back((into(value) + generator.uniform(into(range_.low), into(range_.high))) / 2)
    whole = isinstance(range_.low, int) and isinstance(range_.high, int)
    return round(half_way) if whole else min(max(half_way, range_.low), range_.high)
