"""How what an evaluation found becomes rows of the `evaluation` tables."""

from dataclasses import dataclass
from itertools import combinations

import duckdb
import numpy as np
import polars as pl

from models.evaluation import metrics
from models.evaluation.calibration import CalibrationBin, LikeBin
from models.evaluation.metrics import DegreeBin, DegreeCell, Mean
from tasks.evaluate.considered import Considered
from tasks.evaluate.like import Like
from tasks.stores import warehouse

OF_PROTOCOL = ("metrics", "comparisons", "beyond_accuracy", "considered")
OF_LEAVE_ONE_OUT = ("ranks_by_degree", "ranks_by_both_degrees", "like_by_degree", "dislike_by_degree", "calibration")


@dataclass(frozen=True)
class Ranked:
    """One ranked list: what it scored for each user, over users, of its lists, and by degree."""

    model: str
    score: str
    of_users: dict[str, np.ndarray]
    means: dict[str, Mean]
    beyond: dict[str, Mean]
    bins: list[tuple[str, DegreeBin]]
    cells: list[DegreeCell]


def write(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    protocol: str,
    ranked: list[Ranked],
    likes: list[Like],
    considered: list[Considered],
) -> None:
    """Replace what this run had written of the protocol before, when it is a retry of the stage."""
    forget(connection, run_id, protocol)
    _insert(connection, "metrics", _means(run_id, protocol, ranked, "means"))
    _insert(connection, "beyond_accuracy", _means(run_id, protocol, ranked, "beyond"))
    _insert(connection, "comparisons", _comparisons(run_id, protocol, ranked))
    _insert(connection, "considered", _considered(run_id, protocol, considered))
    if protocol == "leave_one_out":
        _insert(connection, "ranks_by_degree", _bins(run_id, ranked))
        _insert(connection, "ranks_by_both_degrees", _cells(run_id, ranked))
        _insert(connection, "like_by_degree", _like_bins(run_id, [(one.model, one.bins) for one in likes]))
        dislikes = [(one.model, one.dislikes_by_degree) for one in considered]
        _insert(connection, "dislike_by_degree", _like_bins(run_id, dislikes))
        bins = [(one.model, *bin_) for one in likes for bin_ in one.calibration]
        bins += [(one.model, "considered", bin_) for one in considered for bin_ in one.calibration]
        _insert(connection, "calibration", _calibration(run_id, bins))


def forget(connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str) -> None:
    """Remove a run's rows of a protocol."""
    for table in OF_PROTOCOL:
        connection.execute(f"delete from evaluation.{table} where run_id = ? and protocol = ?", [run_id, protocol])
    if protocol == "leave_one_out":
        for table in OF_LEAVE_ONE_OUT:
            connection.execute(f"delete from evaluation.{table} where run_id = ?", [run_id])


def _means(run_id: str, protocol: str, ranked: list[Ranked], kind: str) -> list[tuple]:
    return [
        (run_id, protocol, one.model, one.score, metric, mean.value, mean.standard_error, mean.users)
        for one in ranked
        for metric, mean in getattr(one, kind).items()
    ]


def _comparisons(run_id: str, protocol: str, ranked: list[Ranked]) -> list[tuple]:
    """Every pair of ranked lists, once, in their order."""
    return [
        (
            run_id,
            protocol,
            metric,
            one.model,
            one.score,
            other.model,
            other.score,
            found.difference,
            found.standard_error,
            found.p_value,
            found.users,
        )
        for one, other in combinations(ranked, 2)
        for metric in one.of_users
        for found in [metrics.compare(one.of_users[metric], other.of_users[metric])]
    ]


def _bins(run_id: str, ranked: list[Ranked]) -> list[tuple]:
    return [
        (run_id, one.model, one.score, side, cell.low, cell.high, cell.edges, cell.mean, *cell.percentiles)
        for one in ranked
        for side, cell in one.bins
    ]


def _cells(run_id: str, ranked: list[Ranked]) -> list[tuple]:
    return [
        (run_id, one.model, one.score, *cell.user, *cell.item, cell.edges, cell.mean)
        for one in ranked
        for cell in one.cells
    ]


def _like_bins(run_id: str, bins: list[tuple[str, list[LikeBin]]]) -> list[tuple]:
    return [
        (run_id, model, one.low, one.high, one.edges, one.error, list(one.histogram))
        for model, of_model in bins
        for one in of_model
    ]


def _considered(run_id: str, protocol: str, considered: list[Considered]) -> list[tuple]:
    return [
        (run_id, protocol, one.model, metric, figure.value, figure.standard_error, one.likes, one.dislikes)
        for one in considered
        for metric, figure in one.figures.items()
    ]


def _calibration(run_id: str, bins: list[tuple[str, str, CalibrationBin]]) -> list[tuple]:
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


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: list[tuple]) -> None:
    """Append rows, whose values are in the order of the table's columns."""
    columns = connection.table(f"evaluation.{table}").columns
    frame = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
    warehouse.insert(connection, f"evaluation.{table}", frame)
