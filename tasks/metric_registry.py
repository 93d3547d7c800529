"""Metrics of users that a run adds to its tables: at any k, and functions of any importable module.

A function is known by its location, `module:function`, which is the name of its rows.
"""

import difflib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from oneclass.models.evaluation import definitions
from oneclass.models.evaluation.definitions import METRICS_AT_K
from oneclass.models.evaluation.metrics import find_metric
from oneclass.tasks.errors import InputError


@dataclass(frozen=True)
class UserRanks:
    """The ranks of one user's targets in one ranked list, as a metric of one's own gets them.

    Attributes:
        user_id: of the user.
        targets: the ids of the items to be found, the best ranked first.
        places: int64 (targets,), the place of each in the ranking of all candidates: 1 is the head.
        candidates: the number of ranked items, targets included.
    """

    user_id: Any
    targets: list[Any]
    places: np.ndarray
    candidates: int


OwnMetric = Callable[[UserRanks], float]


@dataclass(frozen=True)
class ChosenMetrics:
    """Metrics of users beside those of every run.

    Attributes:
        by_rank: names of those that the ranks alone decide (`models.evaluation.metrics`).
        own: functions by the names of their rows.
        digest: of the names and of the files that define the functions.
    """

    by_rank: tuple[str, ...] = ()
    own: dict[str, OwnMetric] = field(default_factory=dict)
    digest: str = ""


def choose_metrics(names: Sequence[str]) -> ChosenMetrics:
    """Find metrics by name, such as `precision@7`, or by `module:function`, without those of every run.

    Raises:
        InputError: a name is unknown, or is that of a metric of whole lists, or its function cannot be imported.
    """
    further = [name for name in dict.fromkeys(names) if name not in definitions.USER_METRICS]
    by_rank = tuple(name for name in further if find_metric(name))
    found = {name: _load_function(name) for name in further if name not in by_rank}
    files = [(name, hashlib.sha256(source).hexdigest()) for name, (_, source) in found.items()]
    digest = hashlib.sha256(repr((by_rank, files)).encode()).hexdigest() if further else ""
    return ChosenMetrics(by_rank, {name: function for name, (function, _) in found.items()}, digest)


def _load_function(name: str) -> tuple[OwnMetric, bytes]:
    """Import a function by its location, and read the file of its module; nothing is read of a built-in module."""
    of_lists = {**definitions.LIST_METRICS, **definitions.NEW_ITEM_METRICS, **definitions.SEEN_ITEM_METRICS}
    if name in of_lists:
        raise InputError(f"setting evaluate.metrics: {name} is no metric of single users; use oneclass.evaluate.")
    location, separator, attribute = name.partition(":")
    if not separator:
        close = difflib.get_close_matches(name, METRICS_AT_K, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise InputError(
            f"setting evaluate.metrics: {name} is unknown.{hint} There are {', '.join(METRICS_AT_K)}, for any whole "
            "number k from 1, and functions by module:function."
        )
    try:
        module = import_module(location)
    except (ImportError, ValueError) as error:
        raise InputError(f"metric {name}: {error}. Write module:function of an installed module.") from error
    function: OwnMetric | None = getattr(module, attribute, None)
    if function is None or not callable(function):
        raise InputError(f"metric {name}: {location} has no function {attribute}.")
    file = getattr(module, "__file__", None)
    return function, Path(file).read_bytes() if file else b""
