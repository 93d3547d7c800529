"""Metrics by name for an evaluation, and those of the first items of users' lists at any k."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.interactions import attribute_kinds
from oneclass.models.base import Model
from oneclass.models.evaluation.definitions import (
    LIST_METRICS,
    LIST_METRICS_AT_K,
    METRICS_AT_K,
    NEW_ITEM_METRICS,
    SEEN_ITEM_METRICS,
    USER_METRICS,
)
from oneclass.models.evaluation.list_metrics import (
    ListFigures,
    ListMetric,
    Lists,
    compute_list_metrics,
    find_list_metric,
)
from oneclass.models.evaluation.metrics_at_k import find_metric
from oneclass.tasks.evaluate.jobs import collect_test_ranks
from oneclass.tasks.evaluate.own_metrics import IdsByIndex, compute_own_metric
from oneclass.tasks.evaluate.ranking import ComputeMetric, RankedTargets, from_ranks
from oneclass.tasks.evaluate.strata import STRATA, StratumRow, evaluate_strata
from oneclass.tasks.metric_registry import OwnMetric
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores.matrices import SplitMatrices

Metrics = Mapping[str, str | OwnMetric]  # by the names of their rows


def name_metrics(metrics: Sequence[str | OwnMetric] | str | OwnMetric, protocol: str) -> Metrics:
    """Return metrics by the names of their rows: that of a function is its own.

    Raises:
        ValueError: a name is unknown, and the error lists what there is; a function has a name that is taken.
    """
    of_tables = {**USER_METRICS, **SEEN_ITEM_METRICS, **NEW_ITEM_METRICS, **LIST_METRICS}
    of_tables |= {f"validation_{PROTOCOLS[protocol].tuned_by}": None}
    named: dict[str, str | OwnMetric] = {}
    for metric in [metrics] if isinstance(metrics, str) or callable(metrics) else metrics:
        name = getattr(metric, "__name__", str(metric))
        is_known = name in of_tables or find_metric(name) is not None or find_list_metric(name) is not None
        if callable(metric) and (is_known or name in named):
            raise ValueError(f"metrics: {name} is the name of another metric; rename the function")
        if not (callable(metric) or is_known):
            raise ValueError(
                f"metrics {name}: unknown. There are {', '.join([*METRICS_AT_K, *LIST_METRICS_AT_K])} with any whole "
                f"number k from 1, map, mrr and ndcg without it, {', '.join(of_tables)}, and functions of your own"
            )
        named[name] = metric
    return named


def check_metrics(metrics: Metrics, strata: str | None, items: pl.DataFrame | None) -> None:
    """Refuse metrics of attributes that the items do not have as texts, and strata without a metric of users.

    Raises:
        ValueError: it names the attributes or strata that there are.
    """
    kinds = {} if items is None else attribute_kinds(items)
    known = [name for name, kind in kinds.items() if kind != "number"]
    for metric in filter(None, map(find_list_metric, metrics)):
        if metric.attribute and metric.attribute not in known:
            where = f"take one of {', '.join(known)}" if known else "give texts by Interactions(items=...)"
            raise ValueError(f"metrics {metric.name}: the items have no attribute {metric.attribute}; {where}")
    if strata not in (None, *STRATA):
        raise ValueError(f"strata {strata!r}: take one of {', '.join(STRATA)}")
    if strata and metrics and not any(callable(metric) or find_metric(metric) for metric in metrics.values()):
        raise ValueError(f"strata: {', '.join(metrics)} are of whole lists; add a metric of users, such as ndcg@10")


def compute_strata(
    targets: RankedTargets, item_likes: np.ndarray, strata: str | None, metrics: Metrics, ids: IdsByIndex
) -> Iterable[StratumRow]:
    """Compute metrics of users by strata, by default those of a run's tables; nothing without strata."""
    computed: dict[str, ComputeMetric] = {}
    for name, metric in (metrics or {name: name for name in USER_METRICS}).items():
        if callable(metric):
            computed[name] = partial(compute_own_metric, name, metric, ids=ids)
        elif of_ranks := find_metric(metric):
            computed[name] = from_ranks(of_ranks)
    return evaluate_strata(targets, item_likes, computed, [strata] if strata else [])


def compute_figures(
    metrics: list[ListMetric],
    model: Sequence[Model],
    splits: Sequence[SplitMatrices],
    items: pl.DataFrame | None,
    item_ids: Sequence[Any],
) -> dict[str, ListFigures]:
    """Compute metrics of the test users' lists by each score of a model.

    Args:
        model: as fitted on each of the splits.
        items: the attributes by `item_id`.
        item_ids: by index.
    """
    attributes = dict.fromkeys(metric.attribute for metric in metrics if metric.attribute)
    values = {name: _read_values(items, name, item_ids) for name in attributes if items is not None}
    length, folds = max(metric.k for metric in metrics), {}
    for fitted, split in zip(model, splits, strict=True):
        part = split.users_of("test", 0, None)
        for score, ranked in collect_test_ranks(fitted, split, length).items():
            rows = np.flatnonzero(np.isin(part.users, ranked.users))
            histories, excluded, targets = (of[rows] for of in (part.histories, part.excluded, part.targets))
            of_columns = {name: of[split.items] for name, of in values.items()}
            lists = Lists(ranked.ranks.first, histories, excluded, targets, split.train, of_columns)
            folds.setdefault(score, []).append((lists, split.items))
    return {score: compute_list_metrics(metrics, of_score, len(item_ids)) for score, of_score in folds.items()}


def _read_values(items: pl.DataFrame, attribute: str, item_ids: Sequence[Any]) -> csr_matrix:
    """Return (items, values) CSR, each row the shares of an item's values, which has one, several or none."""
    cells = items.select("item_id", value=attribute)
    cells = cells.explode("value") if isinstance(cells.schema["value"], pl.List) else cells
    rows = pl.DataFrame({"item_id": item_ids, "row": np.arange(len(item_ids))})
    listed = cells.cast({"value": pl.String}).drop_nulls().unique().join(rows, on="item_id").sort("row", "value")
    columns = listed["value"].rank("dense").to_numpy().astype(np.int64) - 1
    shares = listed.select(1 / pl.len().over("row")).to_series().to_numpy()
    return csr_matrix((shares, (listed["row"].to_numpy(), columns)), (len(item_ids), int(columns.max(initial=-1)) + 1))
