"""Metrics that a run's tables lack, at any k or as functions, from the rankings that the tables are made of."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from oneclass.list_heads import HeadsOfLists
from oneclass.models.evaluation.definitions import (
    LIST_METRICS,
    LIST_METRICS_AT_K,
    METRICS_AT_K,
    NEW_ITEM_METRICS,
    SEEN_ITEM_METRICS,
    USER_METRICS,
)
from oneclass.models.evaluation.list_metrics import ListFigures, find_list_metric
from oneclass.models.evaluation.metrics import mean_and_error
from oneclass.models.evaluation.metrics_at_k import WITHOUT_K, find_metric
from oneclass.tasks.evaluate.jobs import clear_caches, collect_test_ranks
from oneclass.tasks.evaluate.own_metrics import IdsByIndex, compute_own_metric
from oneclass.tasks.evaluate.ranking import ComputeMetric, RankedTargets, from_ranks
from oneclass.tasks.evaluate.strata import STRATA, count_item_likes, evaluate_strata
from oneclass.tasks.evaluate.tables import RankedList, compare_lists
from oneclass.tasks.metric_registry import OwnMetric
from oneclass.tasks.protocols import PROTOCOLS, FittedSplit
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home

STRATA_SCHEMA = {
    **dict.fromkeys(["model", "score", "metric", "stratum"], pl.String),
    **dict.fromkeys(["least", "most", "value", "standard_error"], pl.Float64),
    **dict.fromkeys(["users", "targets"], pl.Int64),
}


class ListRanks(NamedTuple):
    """The ranks of the targets of all test users by one score of one model, and metrics of the heads of the lists."""

    model: str
    score: str
    targets: RankedTargets
    lists: ListFigures


def name_metrics(metrics: Sequence[str | OwnMetric] | str | OwnMetric, protocol: str) -> dict[str, str | OwnMetric]:
    """Return metrics by the names of their rows: that of a function is its own.

    Raises:
        TypeError: one is neither a name nor a function.
        ValueError: a name is unknown, and the error lists what there is; a function has no name or one that is taken.
    """
    named: dict[str, str | OwnMetric] = {}
    for metric in [metrics] if isinstance(metrics, str) or callable(metrics) else metrics:
        if isinstance(metric, str):
            name, is_taken = metric, callable(named.get(metric))
        elif callable(metric):
            name = getattr(metric, "__name__", "<lambda>")
            if name == "<lambda>":
                raise ValueError(f"metrics: {metric!r} has no name for its rows; define it with def")
            is_taken = name in named or name in _list_table_metrics(protocol) or find_metric(name) is not None
        else:
            raise TypeError(f"metrics: {metric!r} is a {type(metric).__name__}; give names and functions")
        if is_taken:
            raise ValueError(f"metrics: {name} is the name of another metric; rename the function")
        named[name] = metric
    _refuse_unknown([name for name, metric in named.items() if isinstance(metric, str)], protocol)
    return named


def _list_table_metrics(protocol: str) -> list[str]:
    validation = f"validation_{PROTOCOLS[protocol].tuned_by}"
    return [*USER_METRICS, *SEEN_ITEM_METRICS, *NEW_ITEM_METRICS, *LIST_METRICS, validation]


def _refuse_unknown(names: Sequence[str], protocol: str) -> None:
    of_tables = _list_table_metrics(protocol)
    if unknown := [
        name for name in names if name not in of_tables and not (find_metric(name) or find_list_metric(name))
    ]:
        at_k = [name for name in [*METRICS_AT_K, *LIST_METRICS_AT_K] if name.endswith("@k")]
        others = dict.fromkeys(name for name in [*WITHOUT_K, *of_tables] if "@" not in name)
        fixed = [name for name in of_tables if "@" in name and not (find_metric(name) or find_list_metric(name))]
        raise ValueError(
            f"metrics {', '.join(unknown)}: unknown. There are {', '.join(at_k)} with any whole number k from 1, "
            f"{', '.join([*others, *fixed])}, and functions of your own"
        )


def compile_metric(metric: str | OwnMetric, ids: IdsByIndex) -> ComputeMetric | None:
    """Return the function that computes a metric from ranks; None for a name that only the tables have."""
    if callable(metric):
        return lambda targets: compute_own_metric(getattr(metric, "__name__", ""), metric, targets, ids)
    if (by_name := find_metric(metric)) is None:
        return None
    return from_ranks(by_name)


def collect_ranks(
    home: Home, splits: Sequence[FittedSplit], models: Sequence[str], heads: HeadsOfLists
) -> list[ListRanks]:
    """Rank the targets of the test users of a protocol's splits by every score of the models, in their order.

    Args:
        splits: the digests of the splits, those without a test part among them, and of the fits by model.
        heads: computes metrics of the heads of the rankings.
    """
    tested = [(digest, fits) for digest, fits in splits if "test" in matrices.load_split(home, digest).parts]
    found = []
    for model in models:
        by_score: dict[str, list[RankedTargets]] = {}
        for digest, fits in tested:
            for score, ranked in collect_test_ranks(home, digest, model, fits[model], heads.length).items():
                by_score.setdefault(score, []).append(ranked)
        for score, of in by_score.items():
            found.append(ListRanks(model, score, RankedTargets.concatenate(of), heads.compute(of)))
    clear_caches()
    return found


def evaluate_lists(
    lists: Sequence[ListRanks], metrics: Mapping[str, ComputeMetric], values: pl.DataFrame, pairs: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add the rows of metrics to the tables of an evaluation, `Evaluation.metrics` and `Evaluation.comparisons`."""
    ranked = []
    for model, score, targets, of_lists in lists:
        of_users = {name: metric(targets) for name, metric in metrics.items()}
        means = {name: mean_and_error(of) for name, of in of_users.items() if not np.isnan(of).all()}
        of_users, means = of_users | of_lists.of_users, means | of_lists.means
        ranked.append(RankedList(model, score, of_users, means, {}, [], []))
    rows = [
        (one.model, one.score, metric, mean.value, mean.standard_error, mean.users)
        for one in ranked
        for metric, mean in one.means.items()
    ]
    of_pairs = compare_lists(ranked)
    return (
        values.vstack(pl.DataFrame(rows, schema=values.schema, orient="row")),
        pairs.vstack(pl.DataFrame(of_pairs, schema=pairs.schema, orient="row")),
    )


def check_strata(strata: str, metrics: Mapping[str, str | OwnMetric]) -> None:
    """Refuse unknown strata, and metrics of which none can be computed for some targets alone.

    Raises:
        ValueError: it names the strata that there are.
    """
    if strata not in STRATA:
        raise ValueError(f"strata {strata!r}: take one of {', '.join(STRATA)}")
    if metrics and not any(callable(metric) or find_metric(metric) for metric in metrics.values()):
        raise ValueError(f"strata: {', '.join(metrics)} are of whole lists; add a metric of users, such as ndcg@10")


def evaluate_by_strata(
    lists: Sequence[ListRanks],
    metrics: Mapping[str, str | OwnMetric],
    strata: str,
    ids: IdsByIndex,
    home: Home,
    splits: Sequence[FittedSplit],
) -> pl.DataFrame:
    """Compute metrics by strata: a row per list, stratum and metric, with the columns `STRATA_SCHEMA`.

    Args:
        metrics: those of whole lists are left out; if empty, those of users of a run's tables.
    """
    names = metrics or {name: name for name in USER_METRICS}
    computed = {name: found for name, metric in names.items() if (found := compile_metric(metric, ids)) is not None}
    loaded = [matrices.load_split(home, digest) for digest, _ in splits]
    likes = count_item_likes([split for split in loaded if "test" in split.parts])
    rows = [
        (one.model, one.score, row.metric, *row[2:])
        for one in lists
        for row in evaluate_strata(one.targets, likes, computed, [strata])
    ]
    return pl.DataFrame(rows, schema=STRATA_SCHEMA, orient="row")
