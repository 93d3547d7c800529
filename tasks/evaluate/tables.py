"""Write the result of an evaluation into the `evaluation` tables, or copy that of an earlier run.

A run with the fits and split of an earlier run copies that run's rows, so that a night with nothing new costs one query
per table. Contracts are checked all the same. Rows that have been changed or removed since are not copied.

Strata are thirds of the test users by the length of their histories, and of the items by training likes, cut at the
values at one and two thirds of the sorted users or items; equal values share a stratum. Strata of items divide the
targets: a metric is over the users with a target in the stratum, whose other targets stay in the ranking as candidates
that are none.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl

from oneclass import sql
from oneclass.models.evaluation import metrics
from oneclass.models.evaluation.metrics import (
    DegreeBin,
    Mean,
    UserMetric,
    adjust_benjamini_hochberg,
    find_metric,
    mean_and_error,
)
from oneclass.models.numerics.validation import count_item_degrees
from oneclass.tasks.evaluate.calibration import ExplicitFeedbackResult, LikeCalibration
from oneclass.tasks.evaluate.ranking import RankedTargets
from oneclass.tasks.protocols import FittedSplit
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.stores.stages import StageCache
from oneclass.tasks.stores.warehouse import table_digest

logger = logging.getLogger(__name__)
Rows = list[tuple[Any, ...]]
PROTOCOL_TABLES = ("metrics", "comparisons", "beyond_accuracy", "considered", "strata")
LEAVE_ONE_OUT_TABLES = ("ranks_by_degree", "like_by_degree", "calibration")
STRATA = ACTIVITY, POPULARITY = "activity", "popularity"
THIRDS = ("low", "middle", "high")
STRATUM_METRICS = ("ndcg@100", "recall@20", "mean_rank")  # every protocol has them
COMPUTE_METRICS: dict[str, UserMetric] = {name: of for name in STRATUM_METRICS if (of := find_metric(name)) is not None}


class StratumRow(NamedTuple):
    """One metric of a list over a stratum: the columns of `evaluation.strata` from `metric` on.

    Attributes:
        least, most: the range of the stratum's values.
    """

    metric: str
    strata: str
    stratum: str
    least: float
    most: float
    value: float
    standard_error: float | None
    users: int
    targets: int


@dataclass(frozen=True)
class RankedList:
    """One ranked list: its metrics for each test or validation user, their means, its list metrics, its ranks by
    degree, its metrics by strata, and the number of folds that the users are in.
    """

    model: str
    score: str
    of_users: dict[str, np.ndarray]
    means: dict[str, Mean]
    beyond_accuracy: dict[str, Mean]
    bins: list[tuple[str, DegreeBin]]
    strata: list[StratumRow] = field(default_factory=list)
    folds: int = 1


def write_evaluation(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    protocol: str,
    ranked: list[RankedList],
    likes: list[LikeCalibration],
    explicit_feedback: list[ExplicitFeedbackResult],
) -> None:
    """Write this run's rows of a protocol, replacing those of an earlier try of the stage."""
    delete_evaluation(connection, run_id, protocol)
    rows: dict[str, Rows] = {
        "metrics": _metric_rows(ranked, "means"),
        "beyond_accuracy": _metric_rows(ranked, "beyond_accuracy"),
        "comparisons": compare_lists(ranked),
        "considered": [
            (one.model, metric, figure.value, figure.standard_error, one.likes, one.dislikes)
            for one in explicit_feedback
            for metric, figure in one.figures.items()
        ],
        "strata": [(one.model, one.score, *row) for one in ranked for row in one.strata],
    }
    for table, of_protocol in rows.items():
        _append_rows(connection, table, [(run_id, protocol, *row) for row in of_protocol])
    if protocol != "leave_one_out":
        return
    bins = [(one.model, *bin_) for one in likes for bin_ in one.calibration]
    bins += [(one.model, "considered", bin_) for one in explicit_feedback for bin_ in one.calibration]
    rows = {
        "ranks_by_degree": [
            (one.model, one.score, side, cell.low, cell.high, cell.edges, cell.mean, *cell.percentiles)
            for one in ranked
            for side, cell in one.bins
        ],
        "like_by_degree": [
            (one.model, bin_.low, bin_.high, bin_.edges, bin_.error, list(bin_.histogram))
            for one in likes
            for bin_ in one.bins
        ],
        "calibration": [(model, reference, *vars(bin_).values()) for model, reference, bin_ in bins],
    }
    for table, of_run in rows.items():
        _append_rows(connection, table, [(run_id, *row) for row in of_run])


def delete_evaluation(connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str) -> None:
    """Delete a run's rows of a protocol."""
    for table in PROTOCOL_TABLES:
        connection.execute(f"delete from evaluation.{table} where run_id = ? and protocol = ?", [run_id, protocol])
    if protocol == "leave_one_out":
        for table in LEAVE_ONE_OUT_TABLES:
            connection.execute(f"delete from evaluation.{table} where run_id = ?", [run_id])


def _metric_rows(ranked: list[RankedList], kind: str) -> Rows:
    return [
        (one.model, one.score, metric, mean.value, mean.standard_error, mean.users)
        for one in ranked
        for metric, mean in getattr(one, kind).items()
    ]


def compare_lists(ranked: list[RankedList]) -> Rows:
    """Return a row for each metric and pair of ranked lists, in their order.

    Its values are those of the columns of `evaluation.comparisons` from `metric` on.
    """
    rows = []
    for metric in [name for name in ranked[0].of_users if name in ranked[0].means] if len(ranked) > 1 else ():
        compared = [
            (one, other, metrics.compare_paired(one.of_users[metric], other.of_users[metric], one.folds))
            for one, other in combinations(ranked, 2)
            if not np.isnan(one.of_users[metric] + other.of_users[metric]).all()  # own metrics may leave out users
        ]
        p_values = np.array([found.p_value for *_, found in compared if found.p_value is not None])
        adjusted = iter(adjust_benjamini_hochberg(p_values).tolist())
        rows += [
            (metric, one.model, one.score, other.model, other.score, found.difference, found.standard_error,
             found.p_value, found.users, None if found.p_value is None else next(adjusted))
            for one, other, found in compared
        ]  # fmt: skip
    return rows


def _append_rows(connection: duckdb.DuckDBPyConnection, table: str, rows: Rows) -> None:
    """Append rows with values in the order of the table's columns."""
    columns = connection.table(f"evaluation.{table}").columns
    frame = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
    warehouse.insert(connection, f"evaluation.{table}", frame)


def open_cache(
    connection: duckdb.DuckDBPyConnection, protocol: str, judged: Sequence[FittedSplit], metrics: str
) -> StageCache:
    """Return the cache entry of an evaluation of these models in their order.

    Args:
        judged: the digests of the splits and of the fits on each.
        metrics: the digest of further metrics.
    """
    splits = [(digest, list(fits.items())) for digest, fits in judged]
    parameters = {"splits": splits, "metrics": metrics, "statements": sql.stage_digest("evaluate")}
    sources = [Path(__file__).parent]
    return StageCache(connection, f"evaluate {protocol}", sources, reads="", parameters=parameters, tables=())


def find_earlier(connection: duckdb.DuckDBPyConnection, cache: StageCache, protocol: str) -> dict[str, Any] | None:
    """Find the latest evaluation with this cache entry: its `run_id` and `evaluated`; None if its rows have changed."""
    earlier = cache.lookup()
    if earlier and earlier["rows"] != _rows_digest(connection, earlier["run_id"], protocol):
        logger.warning("%s: the evaluation by run %s changed since; made anew", protocol, earlier["run_id"])
        return None
    return earlier


def copy_rows(connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str, earlier: str) -> None:
    """Copy an earlier run's rows of a protocol to this run, unless it is an earlier try of this run."""
    if earlier != run_id:
        delete_evaluation(connection, run_id, protocol)
        for table, rows in _run_relations(earlier, protocol).items():
            connection.execute(f"insert into evaluation.{table} by name select ? as run_id, * from {rows}", [run_id])


def store_evaluation(
    connection: duckdb.DuckDBPyConnection, cache: StageCache, run_id: str, protocol: str, evaluated: Mapping[str, Any]
) -> None:
    """Store the result and the digest of this run's rows of a protocol."""
    rows = _rows_digest(connection, run_id, protocol)
    cache.store({"run_id": run_id, "rows": rows, "evaluated": dict(evaluated)})


def _run_relations(run_id: str, protocol: str) -> dict[str, str]:
    """Return SQL relations of a run's rows of a protocol, without the run, by table."""
    run_id = run_id.replace("'", "''")
    rows = {table: f"run_id = '{run_id}' and protocol = '{protocol}'" for table in PROTOCOL_TABLES}
    if protocol == "leave_one_out":
        rows |= dict.fromkeys(LEAVE_ONE_OUT_TABLES, f"run_id = '{run_id}'")
    return {table: f"(select * exclude run_id from evaluation.{table} where {of})" for table, of in rows.items()}


def _rows_digest(connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str) -> str:
    return "; ".join(table_digest(connection, rows) for rows in _run_relations(run_id, protocol).values())


def count_item_likes(tested: Sequence[SplitMatrices]) -> np.ndarray:
    """Count each item's training likes, float64 by `item_index`, of folds the most in any; NaN for items of none."""
    likes = np.full(max(int(split.items.max(initial=-1)) for split in tested) + 1, np.nan)
    for split in tested:
        likes[split.items] = np.fmax(likes[split.items], count_item_degrees(split.train))
    return likes


def evaluate_strata(targets: RankedTargets, item_likes: np.ndarray) -> Iterator[StratumRow]:
    """Yield a row for each stratum of the test users or items that has a target, and metric.

    Args:
        targets: with `items` as curated `item_index`.
        item_likes: of `count_item_likes`.
    """
    for strata in STRATA:
        values = targets.history_lengths.astype(np.float64) if strata == ACTIVITY else item_likes
        if np.isnan(values).all():
            continue
        thirds = _divide_by_thirds(values)
        by_user = strata == ACTIVITY
        of_targets = np.repeat(thirds, np.diff(targets.ranks.indptr)) if by_user else thirds[targets.items]
        for number, name in enumerate(THIRDS):
            inside, part = values[thirds == number], targets.select(of_targets == number)
            for metric, compute in COMPUTE_METRICS.items() if len(part.users) else ():
                mean = mean_and_error(compute(part.ranks))
                ends, means = (float(inside.min()), float(inside.max())), (mean.value, mean.standard_error, mean.users)
                yield StratumRow(metric, strata, name, *ends, *means, len(part.items))


def _divide_by_thirds(values: np.ndarray) -> np.ndarray:
    """Return the number of each value's third, int8; -1 for NaN."""
    known = np.sort(values[~np.isnan(values)])
    cuts = [known[-(-len(known) * part // 3) - 1] for part in (1, 2)]
    # Values equal to a cut are below it.
    return np.where(np.isnan(values), -1, np.searchsorted(cuts, values)).astype(np.int8)
