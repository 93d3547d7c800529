"""Metrics of one's own: a function of `UserRanks` is called for each user of each ranked list."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np

from oneclass.tasks.errors import InputError
from oneclass.tasks.evaluate.jobs import EvalBatch, PendingEvaluation
from oneclass.tasks.evaluate.ranking import RankedTargets, TargetRankMetrics
from oneclass.tasks.metric_registry import OwnMetric, UserRanks
from oneclass.tasks.stores import warehouse


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
        TypeError: it returns no finite number and not NaN either.
        Exception: that of the function, with a note of the user.
    """
    values, ranks = np.empty(len(targets.users)), targets.ranks
    for row, user in enumerate(targets.users.tolist()):
        start, end = ranks.indptr[row], ranks.indptr[row + 1]
        order = np.argsort(ranks.position[start:end])
        items = [ids.items[item] for item in targets.items[start:end][order].tolist()]
        places = ranks.position[start:end][order].astype(np.int64) + 1
        try:
            value = metric(UserRanks(ids.users[user], items, places, int(ranks.candidates[row])))
        except Exception as error:
            error.add_note(f"in the metric {name}, of user {ids.users[user]!r}")
            raise
        if not isinstance(value, int | float | np.number | np.bool_) or math.isinf(value):
            raise TypeError(
                f"metric {name}: returns {value!r} for user {ids.users[user]!r}; return a number, "
                "or NaN if it is not defined for this user"
            )
        values[row] = value
    return values


def add_own_metrics(
    pending: PendingEvaluation, metrics: Mapping[str, OwnMetric], ids: IdsByIndex
) -> Iterator[EvalBatch]:
    """Yield the batches, those of the test part with the metrics that functions compute from the ranks of targets.

    Raises:
        InputError: a function fails or returns no number; it names the metric and the user.
    """
    for (part, _), batch in zip(pending.parts, pending.results, strict=True):
        ranks = {score: _add(of, metrics, ids) for score, of in batch.ranks.items()} if part == "test" else batch.ranks
        yield batch._replace(ranks=ranks)


def _add(ranks: TargetRankMetrics, metrics: Mapping[str, OwnMetric], ids: IdsByIndex) -> TargetRankMetrics:
    of_users, is_ranked = dict(ranks.of_users), ~np.isnan(ranks.of_users["mean_rank"])
    for name, metric in metrics.items():
        of_users[name] = np.full(len(is_ranked), np.nan)
        try:
            of_users[name][is_ranked] = compute_own_metric(name, metric, ranks.targets, ids)
        except Exception as error:
            raise InputError(
                "; ".join([f"metric {name} failed: {error!r}", *getattr(error, "__notes__", ())])
            ) from error
    return ranks._replace(of_users=of_users)
