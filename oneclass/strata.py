"""Evaluate ranked lists by strata: thirds of users by their histories, thirds of items by popularity, or an attribute.

`oneclass.tasks.evaluate.strata` divides and averages, as for a run's `evaluation.strata`.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from oneclass.interactions import Interactions, attribute_kinds
from oneclass.models.evaluation.definitions import USER_METRICS
from oneclass.models.evaluation.metrics_at_k import find_metric
from oneclass.tasks.evaluate import strata as divisions
from oneclass.tasks.evaluate.ranked_targets import ComputeMetric, RankedTargets
from oneclass.tasks.evaluate.strata import ACTIVITY, POPULARITY, Stratum, StratumRow
from oneclass.tasks.protocols import FittedSplit
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home
from oneclass.user_metrics import IdsByIndex, ListRanks, OwnMetric, compile_metric

SCHEMA = {
    "model": pl.String,
    "score": pl.String,
    "metric": pl.String,
    "stratum": pl.String,
    "least": pl.Float64,
    "most": pl.Float64,
    "value": pl.Float64,
    "standard_error": pl.Float64,
    "users": pl.Int64,
    "targets": pl.Int64,
}


def check_strata(strata: str, table: Interactions, metrics: Mapping[str, str | OwnMetric]) -> None:
    """Refuse unknown strata, and metrics of which none can be computed for some targets alone.

    Raises:
        ValueError: it names the strata that there are.
    """
    attributes = [] if table.users is None else list(attribute_kinds(table.users, "user_id"))
    if strata not in (known := [ACTIVITY, POPULARITY, *attributes]):
        where = "" if attributes else "; attributes are those of Interactions(users=...)"
        raise ValueError(f"strata {strata!r}: take one of {', '.join(known)}{where}")
    if metrics and not any(callable(metric) or find_metric(metric) for metric in metrics.values()):
        raise ValueError(f"strata: {', '.join(metrics)} are of whole lists; add a metric of users, such as ndcg@10")


def evaluate_strata(
    lists: Sequence[ListRanks],
    metrics: Mapping[str, str | OwnMetric],
    strata: str,
    table: Interactions,
    ids: IdsByIndex,
    *,
    home: Home,
    splits: Sequence[FittedSplit],
) -> pl.DataFrame:
    """Compute metrics by strata: a row per list, stratum and metric, with the columns `SCHEMA`.

    Args:
        metrics: those of whole lists are left out; if empty, those of users of a run's tables.
    """
    names = metrics or {name: name for name in USER_METRICS}
    computed = {name: found for name, metric in names.items() if (found := compile_metric(metric, ids)) is not None}
    of_items = _divide_items(home, splits, len(ids.items)) if strata == POPULARITY else []
    rows = []
    for model, score, targets, _ in lists:
        if strata == POPULARITY:
            numbers = divisions.number_strata(of_items, len(ids.items))
            values = divisions.evaluate_targets(targets, numbers, computed)
            found = divisions.average_by_item_strata(of_items, values)
        else:
            found = _average_by_user_strata(targets, _divide_users(strata, targets, table, ids), computed)
        rows += [(model, score, *row) for row in found]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _average_by_user_strata(
    targets: RankedTargets, strata: Sequence[Stratum], metrics: Mapping[str, ComputeMetric]
) -> Iterator[StratumRow]:
    of_users = {name: metric(targets) for name, metric in metrics.items()}
    return divisions.average_by_user_strata(strata, of_users, np.diff(targets.ranks.indptr))


def _divide_users(strata: str, targets: RankedTargets, table: Interactions, ids: IdsByIndex) -> list[Stratum]:
    if strata == ACTIVITY or table.users is None:
        return divisions.cut_thirds(targets.history_lengths.astype(np.float64))
    of_users = table.users.select("user_id", strata)
    users = pl.Series("user_id", [ids.users[user] for user in targets.users], dtype=of_users.schema["user_id"])
    values = users.to_frame().join(of_users, on="user_id", how="left", maintain_order="left")
    return divisions.divide_by_attribute(values[strata])


def _divide_items(home: Home, splits: Sequence[FittedSplit], items: int) -> list[Stratum]:
    """Divide items by popularity, each stratum with its members among all of them."""
    found = [matrices.load_split(home, digest) for digest, _ in splits]
    likes = divisions.count_item_likes([split for split in found if "test" in split.parts])
    return divisions.cut_thirds(np.append(likes, np.full(items - len(likes), np.nan)))
