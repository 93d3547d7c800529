"""Evaluate: every fitted model ranks all items for the users of a protocol's test part.

Users are scored a block at a time, so that a users x items array is never held; what is kept of a user is one
number a metric.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from models import catalogue, metrics
from models.base import Model
from models.metrics import DegreeBin, Mean
from models.ranking import NotRankable, target_ranks
from models.threads import kernel_threads
from tasks import matrices, progress, warehouse
from tasks.errors import OneclassError
from tasks.home import Home
from tasks.main_table import MAIN_METRICS
from tasks.matrices import Part
from tasks.stage_task import stage_task

logger = logging.getLogger(__name__)

BLOCK_BYTES = 256_000_000  # of one block of scores; large blocks let item-item models read their weights less often


@dataclass(frozen=True)
class Evaluated:
    """How many users an evaluation was over; what it found is in the warehouse.

    Attributes:
        users: test users that were ranked for.
        users_without_target: test users left out, for they have nothing to be found.
    """

    protocol: str
    users: int
    users_without_target: int


@dataclass(frozen=True)
class _Ranked:
    """One ranked list: what it scored for each user, over users, and by degree."""

    model: str
    score: str
    of_users: dict[str, np.ndarray]
    means: dict[str, Mean]
    bins: list[tuple[str, DegreeBin]]


def evaluate(home: Home, run_id: str, protocol: str, matrices_digest: str, fits: dict[str, str]) -> Evaluated:
    """Rewrite this run's rows of the `evaluation` tables for one protocol.

    `evaluation.metrics` gets every metric of the test part, and `validation_ndcg@100` where there is a
    validation part; `evaluation.comparisons` every pair of ranked lists, once, in the order of `fits`;
    `evaluation.ranks_by_degree`, on leave_one_out, the strict ranks by training degree, both ends of a bin
    included.

    Args:
        matrices_digest: the protocol's split in the matrix store.
        fits: digest of each fitted model, by the model's name.

    Raises:
        OneclassError: a model gives a user a NaN, or a user's target lies in its history.
        ContractBroken: a rule over the tables was broken; they are as they were.
    """
    split = matrices.read(home, matrices_digest)
    users = len(_with_targets(split.parts["test"]))
    ranked: list[_Ranked] = []
    if users == 0:
        logger.warning(
            "%s: no test user has anything to be found, so nothing is evaluated; "
            "the log is too small for this protocol",
            protocol,
        )
    else:
        degrees = _item_degrees(split.train) if protocol == "leave_one_out" else None
        for name, digest in fits.items():
            model = catalogue.load(name, home.models / name / digest, threads=home.limits.threads)
            ranked.extend(_of_model(model, protocol, split.parts, degrees))
    with warehouse.stage(home, run_id, "evaluate", {"protocol": protocol}) as connection:
        _write(connection, run_id, protocol, ranked)
    return Evaluated(protocol, users, len(split.parts["test"].users) - users)


def _of_model(model: Model, protocol: str, parts: dict[str, Part], degrees: np.ndarray | None) -> Iterator[_Ranked]:
    """Every ranked list of one model; `degrees`, of items, where ranks by degree are wanted."""
    for score in model.score_names:
        started = time.perf_counter()
        of_users, edge_ranks = rank(model, score, parts["test"])
        means = metrics.over_users(of_users)
        if "validation" in parts and len(_with_targets(parts["validation"])):
            validation, _ = rank(model, score, parts["validation"])
            means["validation_ndcg@100"] = metrics.over_users(validation)["ndcg@100"]
        bins = [] if degrees is None else _by_degree(parts["test"], degrees, edge_ranks)
        main = MAIN_METRICS[protocol][0]
        logger.info(
            "%s %s/%s: %s %.4f over %d users, %.1f s",
            protocol,
            model.name,
            score,
            main,
            means[main].value,
            means[main].users,
            time.perf_counter() - started,
        )
        yield _Ranked(model.name, score, of_users, means, bins)


def rank(model: Model, score: str, part: Part) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """`metrics.user_metrics` of the part's users that have a target, and S of each of their targets."""
    users = _with_targets(part)
    size = max(1, BLOCK_BYTES // (4 * part.targets.shape[1]))
    blocks, edge_ranks = [], []
    for start in progress.over(range(0, len(users), size), f"{model.name}/{score} ranks for {len(users):,} users"):
        block = users[start : start + size]
        histories, targets = part.histories[block], part.targets[block]
        scores = model.scores(histories, users=None if part.rows is None else part.rows[block], score=score)
        try:
            with kernel_threads(model.threads):
                ranks = target_ranks(scores, histories, targets)
        except NotRankable as error:
            user = int(part.users[block[error.row]])
            raise OneclassError(
                f"{model.name}, score {score!r}, user_index {user}: {error.reason}; its items cannot be ranked"
            ) from error
        blocks.append(metrics.user_metrics(ranks))
        edge_ranks.append(metrics.edge_ranks(ranks))
    of_users = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    return of_users, np.concatenate(edge_ranks)


def _with_targets(part: Part) -> np.ndarray:
    """Positions in the part of the users that have a target."""
    return np.flatnonzero(np.diff(part.targets.indptr))


def _item_degrees(train: csr_matrix, chunk: int = 1 << 22) -> np.ndarray:
    """Training edges of each item, counted in chunks, for bincount copies what it counts to int64."""
    degrees = np.zeros(train.shape[1], dtype=np.int64)
    for start in range(0, len(train.indices), chunk):
        degrees += np.bincount(train.indices[start : start + chunk], minlength=len(degrees))
    return degrees


def _by_degree(part: Part, item_degrees: np.ndarray, edge_ranks: np.ndarray) -> list[tuple[str, DegreeBin]]:
    user_degrees = np.repeat(np.diff(part.histories.indptr), np.diff(part.targets.indptr))
    sides = {"user": user_degrees, "item": item_degrees[part.targets.indices]}
    return [(side, one) for side, degrees in sides.items() for one in metrics.by_degree(edge_ranks, degrees)]


def _write(connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str, ranked: list[_Ranked]) -> None:
    """Replace what this run had written before, when it is a retry of the stage."""
    for table in ("metrics", "comparisons"):
        old = f"delete from evaluation.{table} where run_id = ? and protocol = ?"
        connection.execute(old, [run_id, protocol])
    _insert(
        connection,
        "metrics",
        [
            (run_id, protocol, one.model, one.score, metric, mean.value, mean.standard_error, mean.users)
            for one in ranked
            for metric, mean in one.means.items()
        ],
    )
    _insert(
        connection,
        "comparisons",
        [
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
        ],
    )
    if protocol == "leave_one_out":
        connection.execute("delete from evaluation.ranks_by_degree where run_id = ?", [run_id])
        _insert(
            connection,
            "ranks_by_degree",
            [
                (run_id, one.model, one.score, side, cell.low, cell.high, cell.edges, cell.mean, *cell.percentiles)
                for one in ranked
                for side, cell in one.bins
            ],
        )


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: list[tuple]) -> None:
    """Append rows, whose values are in the order of the table's columns."""
    if rows:
        columns = [name for name, *_ in connection.execute(f"describe evaluation.{table}").fetchall()]
        frame = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
        connection.register("found", frame.to_arrow())
        connection.execute(f"insert into evaluation.{table} by name select * from found")
        connection.unregister("found")


evaluate_task = stage_task(evaluate, "evaluate {protocol}")
