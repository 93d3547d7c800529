"""Write the result of an evaluation into the `evaluation` tables."""

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import duckdb
import numpy as np
import polars as pl

from oneclass.models.evaluation import metrics
from oneclass.models.evaluation.calibration import CalibrationBin, LikeBin
from oneclass.models.evaluation.metrics import DegreeBin, DegreeCell, Mean, adjust_benjamini_hochberg
from oneclass.tasks.evaluate.calibration import LikeCalibration
from oneclass.tasks.evaluate.explicit_negatives import ExplicitFeedbackResult
from oneclass.tasks.evaluate.strata import StratumRow
from oneclass.tasks.stores import warehouse

Rows = list[tuple[Any, ...]]
PROTOCOL_TABLES = ("metrics", "comparisons", "beyond_accuracy", "considered", "strata")
LEAVE_ONE_OUT_TABLES = (
    "ranks_by_degree",
    "ranks_by_both_degrees",
    "like_by_degree",
    "dislike_by_degree",
    "calibration",
)


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
    cells: list[DegreeCell]
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
    _append_rows(connection, "metrics", _metric_rows(run_id, protocol, ranked, "means"))
    _append_rows(connection, "beyond_accuracy", _metric_rows(run_id, protocol, ranked, "beyond_accuracy"))
    rows = [(run_id, protocol, *row) for row in compare_lists(ranked)]
    _append_rows(connection, "comparisons", rows)
    _append_rows(connection, "considered", _explicit_feedback_rows(run_id, protocol, explicit_feedback))
    _append_rows(connection, "strata", _stratum_rows(run_id, protocol, ranked))
    if protocol == "leave_one_out":
        _append_rows(connection, "ranks_by_degree", _degree_bin_rows(run_id, ranked))
        _append_rows(connection, "ranks_by_both_degrees", _degree_cell_rows(run_id, ranked))
        _append_rows(connection, "like_by_degree", _like_bin_rows(run_id, [(one.model, one.bins) for one in likes]))
        dislikes = [(one.model, one.dislikes_by_degree) for one in explicit_feedback]
        _append_rows(connection, "dislike_by_degree", _like_bin_rows(run_id, dislikes))
        bins = [(one.model, *bin_) for one in likes for bin_ in one.calibration]
        bins += [(one.model, "considered", bin_) for one in explicit_feedback for bin_ in one.calibration]
        _append_rows(connection, "calibration", _calibration_rows(run_id, bins))


def delete_evaluation(connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str) -> None:
    """Delete a run's rows of a protocol."""
    for table in PROTOCOL_TABLES:
        connection.execute(f"delete from evaluation.{table} where run_id = ? and protocol = ?", [run_id, protocol])
    if protocol == "leave_one_out":
        for table in LEAVE_ONE_OUT_TABLES:
            connection.execute(f"delete from evaluation.{table} where run_id = ?", [run_id])


def _metric_rows(run_id: str, protocol: str, ranked: list[RankedList], kind: str) -> Rows:
    return [
        (run_id, protocol, one.model, one.score, metric, mean.value, mean.standard_error, mean.users)
        for one in ranked
        for metric, mean in getattr(one, kind).items()
    ]


def _stratum_rows(run_id: str, protocol: str, ranked: list[RankedList]) -> Rows:
    return [(run_id, protocol, one.model, one.score, *row) for one in ranked for row in one.strata]


def compare_lists(ranked: list[RankedList]) -> Rows:
    """Return a row for each metric and pair of ranked lists, in their order.

    Its values are those of the columns of `evaluation.comparisons` from `metric` on.
    """
    rows = []
    for metric in [name for name in ranked[0].of_users if name in ranked[0].means] if len(ranked) > 1 else ():
        compared = [
            (one, other, metrics.compare_paired(one.of_users[metric], other.of_users[metric], one.folds))
            for one, other in combinations(ranked, 2)
            if _have_common_users(one.of_users[metric], other.of_users[metric])
        ]
        p_values = np.array([found.p_value for *_, found in compared if found.p_value is not None])
        adjusted = iter(adjust_benjamini_hochberg(p_values).tolist())
        rows += [
            (metric, one.model, one.score, other.model, other.score, found.difference, found.standard_error,
             found.p_value, found.users, None if found.p_value is None else next(adjusted))
            for one, other, found in compared
        ]  # fmt: skip
    return rows


def _have_common_users(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether a user has a value in both lists: metrics of one's own may leave out any."""
    return not (np.isnan(one) | np.isnan(other)).all()


def _degree_bin_rows(run_id: str, ranked: list[RankedList]) -> Rows:
    return [
        (run_id, one.model, one.score, side, cell.low, cell.high, cell.edges, cell.mean, *cell.percentiles)
        for one in ranked
        for side, cell in one.bins
    ]


def _degree_cell_rows(run_id: str, ranked: list[RankedList]) -> Rows:
    return [
        (run_id, one.model, one.score, *cell.user, *cell.item, cell.edges, cell.mean)
        for one in ranked
        for cell in one.cells
    ]


def _like_bin_rows(run_id: str, bins: list[tuple[str, list[LikeBin]]]) -> Rows:
    return [
        (run_id, model, one.low, one.high, one.edges, one.error, list(one.histogram))
        for model, of_model in bins
        for one in of_model
    ]


def _explicit_feedback_rows(run_id: str, protocol: str, considered: list[ExplicitFeedbackResult]) -> Rows:
    return [
        (run_id, protocol, one.model, metric, figure.value, figure.standard_error, one.likes, one.dislikes)
        for one in considered
        for metric, figure in one.figures.items()
    ]


def _calibration_rows(run_id: str, bins: list[tuple[str, str, CalibrationBin]]) -> Rows:
    return [
        (
            run_id,
            model,
            reference,
            one.low,
            one.high,
            one.pairs,
            one.mean_like,
            one.observed,
            one.standard_error,
        )
        for model, reference, one in bins
    ]


def _append_rows(connection: duckdb.DuckDBPyConnection, table: str, rows: Rows) -> None:
    """Append rows with values in the order of the table's columns."""
    columns = connection.table(f"evaluation.{table}").columns
    frame = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
    warehouse.insert(connection, f"evaluation.{table}", frame)
