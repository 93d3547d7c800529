"""Metrics of users that a run adds to its tables: at any k, and functions of any importable module.

A function is called with the `UserRanks` of each user of each ranked list. It is known by its location,
`module:function`, which is the name of its rows.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np

from oneclass.models.evaluation import definitions
from oneclass.models.evaluation.definitions import METRICS_AT_K
from oneclass.models.evaluation.metrics import find_metric
from oneclass.tasks.errors import InputError, suggest_name
from oneclass.tasks.evaluate.jobs import EvalBatch, PendingEvaluation
from oneclass.tasks.evaluate.ranking import RankedTargets, TargetRankMetrics
from oneclass.tasks.stores import warehouse


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
        raise InputError(
            f"setting evaluate.metrics: {name} is unknown.{suggest_name(name, METRICS_AT_K)} There are "
            f"{', '.join(METRICS_AT_K)}, for any whole number k from 1, and functions by module:function."
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


class IdsByIndex(NamedTuple):
    """The ids of users and items by their curated indices."""

    users: Sequence[Any]
    items: Sequence[Any]


NO_IDS = IdsByIndex((), ())


def load_ids(connection: duckdb.DuckDBPyConnection) -> IdsByIndex:
    """Load the ids of all users and items."""
    # one row per user or item, in the order of their indices
    text = "select {0}_id from indexed.{0}s order by {0}_index"
    return IdsByIndex(
        *(warehouse.query(connection, text.format(side)).to_series().to_list() for side in ("user", "item"))
    )


def compute_own_metric(
    name: str, metric: Callable[[UserRanks], Any], targets: RankedTargets, ids: IdsByIndex
) -> np.ndarray:
    """Call a function for each user, float64 (users,).

    Args:
        targets: with `items` as curated `item_index`.

    Raises:
        InputError: it fails, or returns no finite number and not NaN either.
    """
    values, ranks = np.empty(len(targets.users)), targets.ranks
    for row, user in enumerate(targets.users.tolist()):
        start, end = ranks.indptr[row], ranks.indptr[row + 1]
        order = np.argsort(ranks.position[start:end])
        items = [ids.items[item] for item in targets.items[start:end][order].tolist()]
        places = ranks.position[start:end][order].astype(np.int64) + 1
        try:
            value = metric(UserRanks(ids.users[user], items, places, int(ranks.candidates[row])))
            if not isinstance(value, int | float | np.number | np.bool_) or math.isinf(value):
                advice = "return a number, or NaN if it is not defined for this user"
                raise TypeError(f"metric {name}: returns {value!r} for user {ids.users[user]!r}; {advice}")
        except Exception as error:
            error.add_note(f"in the metric {name}, of user {ids.users[user]!r}")
            raise InputError(f"metric {name} failed for user {ids.users[user]!r}: {error!r}") from error
        values[row] = value
    return values


def add_own_metrics(
    pending: PendingEvaluation, metrics: Mapping[str, OwnMetric], ids: IdsByIndex
) -> Iterator[EvalBatch]:
    """Yield the batches, those of the test part with the metrics that functions compute from the ranks of targets."""
    for (part, _), batch in zip(pending.parts, pending.results, strict=True):
        ranks = {score: _add(of, metrics, ids) for score, of in batch.ranks.items()} if part == "test" else batch.ranks
        yield batch._replace(ranks=ranks)


def _add(ranks: TargetRankMetrics, metrics: Mapping[str, OwnMetric], ids: IdsByIndex) -> TargetRankMetrics:
    of_users, is_ranked = dict(ranks.of_users), ~np.isnan(ranks.of_users["mean_rank"])
    for name, metric in metrics.items():
        of_users[name] = np.full(len(is_ranked), np.nan)
        of_users[name][is_ranked] = compute_own_metric(name, metric, ranks.targets, ids)
    return ranks._replace(of_users=of_users)
