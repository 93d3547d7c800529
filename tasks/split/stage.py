"""The stage: write the roles of every protocol's edges and store its matrices."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from scipy.sparse import csr_matrix

from oneclass import sql
from oneclass.tasks.attributes import load_version
from oneclass.tasks.binarize.aggregate import LikeSelection
from oneclass.tasks.binarize.stage import TABLES
from oneclass.tasks.errors import InputError
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.protocols import ALL_EDGES, PROTOCOLS
from oneclass.tasks.split import protocols, strong_generalization
from oneclass.tasks.split.matrix import (
    TRAINING_RELATION,
    MatrixWriter,
    add_explicit_negatives,
    add_new_items,
    load_csr,
    store_roles,
)
from oneclass.tasks.split.protocols import SeenItems, SeenSetting, choose_seen_items, find_cut_day, record_choice
from oneclass.tasks.split.settings import KeepTimes, SplitSettings
from oneclass.tasks.stores import matrices, stages, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part, SplitMatrices
from oneclass.tasks.stores.stages import StageCache
from oneclass.tasks.stores.warehouse import query, select, table_digest

logger = logging.getLogger(__name__)

MIN_USERS = 100  # users with validation edges, below which next_events has none by time and is no default


@dataclass(frozen=True)
class Splits:
    """Digests in the matrix store by protocol or fold, including `all_edges` and `next_events_validation`.

    Protocols without training edges are absent.

    Attributes:
        seen_items: whether next_events and published lists include the items of the histories.
        ordered: whether the matrices keep the order of likes.
    """

    digests: dict[str, str] = field(default_factory=dict)
    seen_items: SeenItems = field(default_factory=SeenItems)
    ordered: bool = False


@dataclass(frozen=True)
class SplitPlan:
    """What to split, and how.

    Attributes:
        protocols: some of `PROTOCOLS`.
        seed: of the hashes; liang2018 uses its published one.
        likes: how `binarize` selected likes, for the counts and weights of `next_events`.
        optional: those of `protocols` that are left out where the log does not allow them: `next_events`, unless
            MIN_USERS users return by its validation edges.
        seen: `publish.seen`; the choice is recorded with the run's settings.
        given_files: `file_id`s of the train and of the test files, for `given`.
        times: whether the matrices have how many days before the end of training each event of an edge was, for a
            model that reads times; `auto`: where lists include seen items.
        folds: of strong_generalization in a small log.
    """

    settings: SplitSettings
    protocols: Sequence[str]
    seed: int
    likes: LikeSelection = field(default_factory=LikeSelection)
    optional: Sequence[str] = ()
    seen: SeenSetting = "auto"
    given_files: tuple[Sequence[int], Sequence[int]] | None = None
    times: KeepTimes = False
    folds: int = 5


def split(home: Home, run_id: str, plan: SplitPlan) -> Splits:
    """Rewrite the protocols' tables of `indexed` and store the matrices; tables of other protocols are emptied.

    Tables and matrices stay if the edges, settings and seed are unchanged and the matrices are undamaged.

    Raises:
        InputError: liang2018 with too few users for `split.held_out_users`, next_events of logs without times, or
            `split.validation = latest` of a given split without an order.
    """
    train_files, test_files = (",".join(map(str, ids)) for ids in plan.given_files or ((), ()))
    parameters = {
        **plan.settings.model_dump(),
        "max_evaluated_users": protocols.MAX_EVALUATED_USERS,
        "next_from": None,
        "times": plan.times,
        "folds": plan.folds,
        "seed": plan.seed,
        "seen": plan.seen,
        **{one: one in plan.protocols for one in PROTOCOLS},
        "optional": ",".join(plan.optional),
        "train_files": train_files,
        "test_files": test_files,
    }
    with stages.run_stage(home, run_id, "split", parameters) as connection:
        cache = _open_cache(connection, plan, parameters)
        result = cache.lookup()
        if not result or not all(matrices.has_split(home, digest) for digest in result["digests"].values()):
            with ThreadPoolExecutor(1) as writer:
                result = rewrite_splits(
                    connection, plan, lambda split: writer.submit(matrices.store_split, home, split)
                )
            cache.store(result)
        parameters |= result["drawn"]
        seen_items = SeenItems(**result["seen_items"])
        record_choice(connection, run_id, seen_items)
    for protocol, message in result["validation"].items():
        logger.info("%s, validation: %s", protocol, message)
    logger.info("seen items: %s; %s", seen_items.choice, seen_items.reason)
    return Splits(result["digests"], seen_items, result["ordered"])


def _open_cache(connection: duckdb.DuckDBPyConnection, plan: SplitPlan, parameters: dict[str, Any]) -> StageCache:
    """Return the cache entry of the protocols' tables for these parameters and what they are made from."""
    by_time, is_given = "next_events" in plan.protocols, "given" in plan.protocols
    tables = [*TABLES]
    if by_time or is_given or plan.times:  # next_events reads counts, and given its parts, from the logs
        tables.append("raw.events")
    if by_time or is_given or plan.settings.order:
        tables.append("raw.places")
    # The kinds of the columns may change without a cell.
    attributes = {side: found for side in ("item", "user") if (found := load_version(connection, side))}
    if attributes:
        tables.append("raw.attributes")
        parameters = {**parameters, "attributes": attributes}
    likes, since, until = plan.likes
    like_values = {**likes.model_dump(), "since": since, "until": until} if by_time or plan.times else {}
    return StageCache(
        connection,
        "split",
        [Path(__file__).parent],
        reads="; ".join(table_digest(connection, table) for table in tables),
        parameters={**parameters, **like_values},
        tables=[*(f"indexed.{protocol}" for protocol in PROTOCOLS), "indexed.new_items", "diagnostics.leakage"],
    )


def rewrite_splits(
    connection: duckdb.DuckDBPyConnection,
    plan: SplitPlan,
    write: Callable[[SplitMatrices], Future[str]],
    features: csr_matrix | None = None,
) -> dict[str, Any]:
    """Write the roles and matrices of every protocol.

    Args:
        write, features: as in `MatrixWriter`.

    Returns:
        digests of the matrices; the parameters of the draws for the contract; the log message on each
        protocol's validation edges; and whether seen items are included and the order of likes is kept.
    """
    settings, seed = plan.settings, plan.seed
    cut_day = find_cut_day(connection)
    seen_items = choose_seen_items(connection, plan.seen, cut_day)
    keeps_times = seen_items.included if plan.times == "auto" else plan.times
    timed = plan.likes if keeps_times else None
    connection.execute("delete from indexed.new_items")
    connection.execute(sql.statement("split/new_items"))
    # one row: whether an event has a time or a place in an adjacency list
    ordered = query(connection, "select $timed or exists (from raw.places)", timed=cut_day is not None).item()
    ordered = ordered if settings.order == "auto" else settings.order
    summed = plan.likes.likes.adds_values
    matrix_writer = MatrixWriter(connection, write, order=ordered, summed=summed, timed=timed, features=features)
    drawn: dict[str, Any] = {}
    messages: dict[str, str] = {}
    past = None
    for protocol in PROTOCOLS:
        connection.execute(f"delete from indexed.{protocol}")
    if "strong_generalization" in plan.protocols:
        drawn |= _store_strong_generalization(connection, plan, matrix_writer)
    if set(plan.protocols) != {"given"}:
        drawn |= _store_all_edges(connection, plan, matrix_writer)
    if "next_events" in plan.protocols:
        included = seen_items.included
        past, messages["next_events"] = _store_next_events(connection, plan, matrix_writer, cut_day, included)
        drawn |= {"next_from": str(past.before), "seen_items": included} if past else {"next_events": False}
    if "given" in plan.protocols:
        assert plan.given_files is not None
        split_matrices = _load_given_split(connection, plan.given_files)
        split_matrices, messages["given"] = protocols.split_latest_events(connection, split_matrices, settings)
        matrix_writer.store(split_matrices)
    connection.execute("delete from diagnostics.leakage")
    values = {"seed": str(seed), "folds": drawn.get("fold_count", 1)}
    trained = past.edges if past else "(from indexed.interactions limit 0)"
    connection.execute(sql.statement("split/leakage", past=trained), values)
    warehouse.drop_temporary(connection)
    digests = matrix_writer.digests()
    found: dict[str, Any] = {"digests": digests, "drawn": drawn, "validation": messages}
    return found | {"seen_items": asdict(seen_items), "ordered": ordered}


def _store_strong_generalization(
    connection: duckdb.DuckDBPyConnection, plan: SplitPlan, matrix_writer: MatrixWriter
) -> dict[str, Any]:
    """Store the matrices of strong_generalization or of its folds; return the parameters of the draws."""
    share, seed, count = protocols.limit_share(connection, plan.settings), plan.seed, 0
    settings = plan.settings.model_copy(update={"held_out_share": share})
    for count, fold in enumerate(strong_generalization.make_splits(connection, settings, seed, plan.folds), 1):
        matrix_writer.store(add_explicit_negatives(connection, fold, seed))
    warehouse.drop_temporary(connection)
    return {"fold_count": count, "held_out_share": share}


def _store_all_edges(
    connection: duckdb.DuckDBPyConnection, plan: SplitPlan, matrix_writer: MatrixWriter
) -> dict[str, Any]:
    """Store the matrix of every edge, and the splits that are made from it; return the parameters of the draws."""
    everything, seed = _build_all_edges(connection), plan.seed
    edges = add_explicit_negatives(connection, everything, seed=0)  # no draws, since nothing is held out
    matrix_writer.store(add_new_items(connection, edges))
    warehouse.drop_temporary(connection)
    drawn: dict[str, Any] = {}
    if "leave_one_out" in plan.protocols:
        drawn["max_evaluated_users"] = protocols.limit_users(everything.train.shape[1])
        left_out = protocols.make_leave_one_out(connection, everything, seed, drawn["max_evaluated_users"])
        matrix_writer.store(add_explicit_negatives(connection, left_out, seed))
        warehouse.drop_temporary(connection)
    if "cold_items" in plan.protocols:
        matrix_writer.require_item_features()
        matrix_writer.store(protocols.make_cold_items(connection, everything, seed))
        warehouse.drop_temporary(connection)
    return drawn


def _store_next_events(
    connection: duckdb.DuckDBPyConnection,
    plan: SplitPlan,
    matrix_writer: MatrixWriter,
    day: date | None,
    seen_items: bool,
) -> tuple[protocols.Likes | None, str]:
    """Fill `indexed.next_events` and store its matrices and those of its validation edges.

    Args:
        day: the first day of the targets; None if no event has a time.
        seen_items: whether pairs that train and come again are targets too.

    Returns:
        The likes that train, None if the protocol is left out; and the log message on its validation edges.
    """
    settings, seed, is_optional = plan.settings, plan.seed, "next_events" in plan.optional
    if day is None and not is_optional:
        raise InputError(
            "protocol next_events: needs the times of events, and these logs have none; leave it out of --protocols."
        )
    make = partial(protocols.make_next_events, connection, plan.likes, seen_items=seen_items, seed=seed)
    is_by_time, message = False, "drawn at random, as split.validation says"
    past = protocols.find_likes(connection, plan.likes, day) if day else None
    earlier = past and find_cut_day(connection, past.edges)
    if past and earlier and settings.validation != "random":
        before_that = protocols.find_likes(connection, plan.likes, earlier)
        by_time = make(before_that, past)
        users = by_time.parts["validation"].targets.shape[0]
        is_by_time = users >= MIN_USERS or settings.validation == "latest"
        message = f"drawn at random, for the last days, from {earlier} on, have only {users} users with earlier edges"
        if is_by_time:
            message = f"the edges from {earlier} on, of {users:,} users"
            by_time = add_explicit_negatives(connection, by_time, seed, before_that.negatives)
            matrix_writer.store(by_time, before=earlier)
        del by_time  # which is as large as the next one
    if past is None or (not is_by_time and is_optional):
        return None, "left out, for " + ("no event has a time" if past is None else message)
    split_matrices = make(past)
    store_roles(connection, "next_events", "next_events_roles")
    split_matrices = add_explicit_negatives(connection, split_matrices, seed, past.negatives)
    matrix_writer.store(split_matrices, before=day)
    return past, message


def _load_given_split(
    connection: duckdb.DuckDBPyConnection, files: tuple[Sequence[int], Sequence[int]]
) -> SplitMatrices:
    train, test = (", ".join(map(str, ids)) for ids in files)
    connection.execute(sql.statement("split/given", train_files=train, test_files=test))
    store_roles(connection, "given", "given_roles")
    items, everyone = (
        query(connection, f"select distinct {side}_index from given_roles order by 1").to_series().to_numpy()
        for side in ("item", "user")
    )
    width = int(items[-1]) + 1 if len(items) else 0
    _, train = load_csr(connection, TRAINING_RELATION["given"], width, everyone)
    users, targets = load_csr(connection, "given_roles where role = 'test'", width)
    rows = np.searchsorted(everyone, users).astype(np.int32)
    logger.info("given, %s users, %s edges held out", f"{len(everyone):,}", f"{targets.nnz:,}")
    part = Part(stored_histories=None, targets=targets, users=users, rows=rows)
    return SplitMatrices("given", train, everyone, np.arange(width, dtype=np.int32), {"test": part})


def _build_all_edges(connection: duckdb.DuckDBPyConnection) -> SplitMatrices:
    # one row per curated edge, its item's column the item's index
    columns = "*, item_index as item_column, coalesce(weight, event_count)::float as confidence"
    connection.execute(f"create or replace temp view all_edges as select {columns} from indexed.interactions")
    items = select(connection, "split/sizes")["items"].item()
    users, train = load_csr(connection, "all_edges where true", items)
    return SplitMatrices(ALL_EDGES, train, users, np.arange(items, dtype=np.int32))


def store_all_edges(home: Home, *, order: bool = False, timed: LikeSelection | None = None) -> str:
    """Store the matrix of every current curated edge, with the items that nobody likes, and return its digest.

    Args:
        order, timed: as in `MatrixWriter`.
    """
    with warehouse.open_warehouse(home) as connection, ThreadPoolExecutor(1) as writer:
        matrix_writer = MatrixWriter(
            connection,
            lambda split: writer.submit(matrices.store_split, home, split),
            order=order,
            summed=False,  # of next_events alone
            timed=timed,
        )
        edges = add_explicit_negatives(connection, _build_all_edges(connection), seed=0)
        matrix_writer.store(add_new_items(connection, edges))
        digests = matrix_writer.digests()
    if not digests:
        raise InputError(f"{home.dataset}: has no edge to fit a model on.")
    return digests[ALL_EDGES]


split_task = stage_task(split)
