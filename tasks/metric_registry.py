"""Metrics of users that a run adds to its tables: at any k, functions of other packages, or of any importable module.

A package declares its functions as entry points of the group `oneclass.metrics`; none replaces a metric of this one. A
function of any importable module is also known by its location, `module:function`, which is then its name.
"""

import difflib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from oneclass.models.evaluation.definitions import (
    LIST_METRICS,
    METRICS_AT_K,
    NEW_ITEM_METRICS,
    SEEN_ITEM_METRICS,
    USER_METRICS,
)
from oneclass.models.evaluation.list_metrics import find_list_metric
from oneclass.models.evaluation.metrics_at_k import find_metric
from oneclass.tasks.errors import InputError

GROUP = "oneclass.metrics"  # of entry points


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
        by_rank: names of those that the ranks alone decide (`models.evaluation.metrics_at_k`).
        own: functions by the names of their rows.
        digest: of the names and of the files that define the functions.
    """

    by_rank: tuple[str, ...] = ()
    own: dict[str, OwnMetric] = field(default_factory=dict)
    digest: str = ""


def choose_metrics(names: Sequence[str]) -> ChosenMetrics:
    """Find metrics by name, such as `precision@7`, by the name of an entry point, or by `module:function`.

    Names that every run's tables have are left out.

    Raises:
        InputError: a name is unknown, or is that of a metric of whole lists, or its function cannot be imported.
    """
    by_rank, own, files = [], {}, []
    for name in dict.fromkeys(names):
        if name in USER_METRICS:
            continue
        if find_metric(name):
            by_rank.append(name)
            continue
        location = name if ":" in name else _locate_entry_point(name)
        own[name] = _load_function(name, location)
        files.append((name, location, _digest_file(location)))
    digest = hashlib.sha256(repr((by_rank, files)).encode()).hexdigest() if by_rank or own else ""
    return ChosenMetrics(tuple(by_rank), own, digest)


def _locate_entry_point(name: str) -> str:
    locations = _list_entry_points()
    if name in [*LIST_METRICS, *NEW_ITEM_METRICS, *SEEN_ITEM_METRICS] or find_list_metric(name):
        raise InputError(
            f"setting evaluate.metrics: {name} is no metric that each user has for itself; oneclass.evaluate has "
            "metrics of whole lists at any k."
        )
    if name not in locations:
        known = [*METRICS_AT_K, *locations]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise InputError(
            f"setting evaluate.metrics: {name} is unknown.{hint} There are {', '.join(METRICS_AT_K)}, for any whole "
            f"number k from 1, the entry points of {GROUP} ({', '.join(locations) or 'none is installed'}), and "
            "functions by module:function."
        )
    return locations[name]


def _list_entry_points() -> dict[str, str]:
    """Return the location of each function that a package declares, by its name."""
    return {point.name: f"{point.module}:{point.attr}" for point in entry_points(group=GROUP)}


def _load_function(name: str, location: str) -> OwnMetric:
    module, _, attribute = location.partition(":")
    try:
        function: OwnMetric | None = getattr(import_module(module), attribute, None)
    except (ImportError, ValueError) as error:
        raise InputError(f"metric {name}: {error}. Write module:function of an installed module.") from error
    if function is None or not callable(function):
        raise InputError(f"metric {name}: {module} has no function {attribute}.")
    return function


def _digest_file(location: str) -> str:
    """Return the sha256 of the file of a function's module, by which evaluations are known; empty for a built-in."""
    file = getattr(import_module(location.partition(":")[0]), "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
