"""Split: which edges are trained on, which are the known history of a held-out user, and which have to be found."""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

import sql
from tasks import binarize
from tasks.errors import InputError
from tasks.orchestration.stage_task import stage_task
from tasks.protocols import ALL_EDGES, PROTOCOLS
from tasks.split import leave_one_out, liang2018, line_ends, next_events, observed_negatives
from tasks.split.matrix import keep, matrix
from tasks.split.settings import SplitSettings
from tasks.split.store import Store
from tasks.stores import matrices, warehouse
from tasks.stores.home import Home
from tasks.stores.matrices import Part, SplitMatrices
from tasks.stores.stage_results import StageResult, table_digest
from tasks.stores.warehouse import select

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Splits:
    """Digests in the matrix store by protocol, `all_edges` among them; no entry for a protocol without training edges."""

    digests: dict[str, str] = field(default_factory=dict)


def split(
    home: Home,
    settings: SplitSettings,
    run_id: str,
    *,
    protocols: Sequence[str],
    seed: int,
    ids_are_numbers: bool = True,
    given_files: tuple[Sequence[int], Sequence[int]] | None = None,
    threshold: float = 1.0,
    since: date | None = None,
) -> Splits:
    """Rewrite the protocols' tables of `indexed` and store the matrices; those of protocols not asked for are emptied.

    Where the edges, the settings and the seed are those of the last time, and the matrices are whole, both stay.

    Args:
        protocols: some of `PROTOCOLS`.
        seed: of the hashes; liang2018 has its own, the published one.
        ids_are_numbers: liang2018 sorts users by id, numerically or as text.
        given_files: `file_id`s of the train and of the test files, for `given`.
        threshold, since: by which `binarize` took an event for a like, for the counts of `next_events`.

    Raises:
        InputError: liang2018 with too few users for `split.held_out_users`, next_events of logs without times, or
            `split.validation = line_end` of a given split without an order.
    """
    train_files, test_files = (",".join(map(str, ids)) for ids in given_files or ((), ()))
    by_time, counted = "next_events" in protocols, {"threshold": threshold, "since": since}
    asked = _Asked(protocols, seed, ids_are_numbers, given_files, threshold, since)
    parameters = {
        **settings.model_dump(),
        "seed": seed,
        **{one: one in protocols for one in PROTOCOLS},
        "train_files": train_files,
        "test_files": test_files,
    }
    with warehouse.stage(home, run_id, "split", parameters) as connection:
        reads = "; ".join(table_digest(connection, table) for table in binarize.TABLES)
        if by_time or "given" in protocols:  # the logs tell the counts of the one, and the parts of the other
            reads += f"; {table_digest(connection, 'raw.events')}"
        if by_time or "given" in protocols or settings.order:
            reads += f"; {table_digest(connection, 'raw.places')}"
        kept = StageResult(
            connection,
            "split",
            Path(__file__).parent,
            reads=reads,
            parameters={**parameters, "ids_are_numbers": ids_are_numbers, **(counted if by_time else {})},
            tables=[f"indexed.{protocol}" for protocol in PROTOCOLS],
        )
        found = kept.standing()
        if not found or not all(matrices.is_whole(home, digest) for digest in found["digests"].values()):
            with ThreadPoolExecutor(1) as writer:
                found = _rewrite(home, connection, settings, asked, Store(home, connection, settings.order, writer))
            kept.keep(found)
        parameters |= found["drawn"]
    for protocol, words in found["validation"].items():
        logger.info("%s, validation: %s", protocol, words)
    return Splits(found["digests"])


@dataclass(frozen=True)
class _Asked:
    """The arguments of `split` beside the settings."""

    protocols: Sequence[str]
    seed: int
    ids_are_numbers: bool
    given_files: tuple[Sequence[int], Sequence[int]] | None
    threshold: float
    since: date | None


def _rewrite(
    home: Home, connection: duckdb.DuckDBPyConnection, settings: SplitSettings, asked: _Asked, store: Store
) -> dict[str, dict[str, Any]]:
    """The digests of the matrices; what was drawn that SQL cannot draw again, for the contract; and by which edges of a
    protocol settings are chosen, in words.
    """
    drawn: dict[str, Any] = {}
    said: dict[str, str] = {}
    for protocol in PROTOCOLS:
        connection.execute(f"delete from indexed.{protocol}")
    if "strong_generalization" in asked.protocols:
        made = _strong_generalization(connection, settings, asked.seed, asked.ids_are_numbers)
        store.keep(observed_negatives.beside(connection, made, asked.seed))
        if settings.scheme == "liang2018":
            drawn |= select(connection, "split/drawn").row(0, named=True)
    warehouse.drop_temporary(connection)
    everything = _all_edges(connection) if set(asked.protocols) != {"given"} else None
    if everything:  # it holds nothing out, and so draws nothing
        store.keep(observed_negatives.beside(connection, everything, seed=0))
        warehouse.drop_temporary(connection)
    if "leave_one_out" in asked.protocols:
        made = leave_one_out.make(connection, everything, asked.seed, home.limits.threads)
        drawn |= select(connection, "split/left_out_drawn").row(0, named=True)
        store.keep(observed_negatives.beside(connection, made, asked.seed))
        warehouse.drop_temporary(connection)
    if "next_events" in asked.protocols:
        day = next_events.cut(connection, settings)
        made = next_events.make(connection, day, asked.threshold, asked.since)
        made, said["next_events"] = line_ends.of_next_events(connection, made, settings)
        store.keep(observed_negatives.beside(connection, made, asked.seed, day))
        drawn["next_from"] = str(day)
    if "given" in asked.protocols:
        made = _given(connection, asked.given_files)
        made, said["given"] = line_ends.of_given(connection, made, settings)
        store.keep(made)
    warehouse.drop_temporary(connection)
    return {"digests": store.digests(), "drawn": drawn, "validation": said}


def _strong_generalization(
    connection: duckdb.DuckDBPyConnection, settings: SplitSettings, seed: int, ids_are_numbers: bool
) -> SplitMatrices:
    least = {"min_user_edges": str(settings.min_user_edges), "min_item_edges": str(settings.min_item_edges)}
    connection.execute(sql.statement("split/active", **least))
    if settings.scheme == "hashed":
        values = {"seed": str(seed), "held_out_share": settings.held_out_share}
        connection.execute(sql.statement("split/hashed_users"), values)
    else:
        liang2018.draw_users(connection, settings, ids_are_numbers)
    for made in ("split/active_edges", "split/train_items", "split/held_out_edges"):
        connection.execute(sql.statement(made))
    if settings.scheme == "hashed":
        connection.execute(sql.statement("split/hashed_targets"), {"seed": str(seed)})
    else:
        liang2018.draw_targets(connection, ids_are_numbers)
    connection.execute(sql.statement("split/held_out_roles"))
    connection.execute(sql.statement("split/roles"))
    keep(connection, "strong_generalization", "roles", "user_index, item_index, part, role")

    items = connection.sql("select item_index from train_items order by item_column").pl()["item_index"].to_numpy()
    users, train = matrix(connection, "roles where role = 'fit'", len(items))
    parts = {part: _held_out_part(connection, part, len(items)) for part in ("validation", "test")}
    sizes = ", ".join(f"{len(part.users):,} {name}" for name, part in parts.items())
    logger.info("strong_generalization, %s training users, %s, %s items", f"{len(users):,}", sizes, f"{len(items):,}")
    return SplitMatrices("strong_generalization", train, users, items, parts)


def _held_out_part(connection: duckdb.DuckDBPyConnection, part: str, items: int) -> Part:
    """Users with a target to find; their histories and targets, row by row."""
    users, targets = matrix(connection, f"roles where part = '{part}' and role = 'target'", items)
    users, histories = matrix(connection, f"roles where part = '{part}' and role = 'fold_in'", items, users)
    return Part(histories=histories, targets=targets, users=users)


def _given(connection: duckdb.DuckDBPyConnection, files: tuple[Sequence[int], Sequence[int]]) -> SplitMatrices:
    train, test = (", ".join(map(str, ids)) for ids in files)
    connection.execute(sql.statement("split/given", train_files=train, test_files=test))
    keep(connection, "given", "given_roles")
    return _same_users(connection, "given", "given_roles", "test")


def _same_users(connection: duckdb.DuckDBPyConnection, protocol: str, roles: str, held_out: str) -> SplitMatrices:
    """A protocol that tests on the training users themselves."""
    items, everyone = (
        select(connection, "split/indices", {"side": side, "edges": roles}).to_series().to_numpy()
        for side in ("item", "user")
    )
    width = int(items[-1]) + 1 if len(items) else 0
    _, train = matrix(connection, f"{roles} where role = 'train'", width, everyone)
    users, targets = matrix(connection, f"{roles} where role = '{held_out}'", width)
    rows = np.searchsorted(everyone, users).astype(np.int32)
    logger.info("%s, %s users, %s edges held out", protocol, f"{len(everyone):,}", f"{targets.nnz:,}")
    part = Part(histories=None, targets=targets, users=users, rows=rows)
    return SplitMatrices(protocol, train, everyone, np.arange(width, dtype=np.int32), {"test": part})


def _all_edges(connection: duckdb.DuckDBPyConnection) -> SplitMatrices:
    connection.execute(sql.statement("split/all_edges"))
    items = select(connection, "split/sizes")["items"].item()
    users, train = matrix(connection, "all_edges where true", items)
    return SplitMatrices(ALL_EDGES, train, users, np.arange(items, dtype=np.int32))


def all_edges(home: Home, *, order: bool = False) -> str:
    """The digest of the matrix of every curated edge as they are now, which is put into the store.

    Args:
        order: `split.order`.
    """
    with warehouse.connect(home) as connection, ThreadPoolExecutor(1) as writer:
        store = Store(home, connection, order, writer)
        store.keep(observed_negatives.beside(connection, _all_edges(connection), seed=0))
        digests = store.digests()
    if not digests:
        raise InputError(f"{home.dataset}: has no edge to fit a model on.")
    return digests[ALL_EDGES]


split_task = stage_task(split)
