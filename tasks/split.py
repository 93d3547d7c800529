"""Split: which edges are trained on, which are the known history of a held-out user, and which have to be found."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import duckdb
import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_matrix

import sql
from tasks.errors import InputError
from tasks.orchestration.stage_task import stage_task
from tasks.protocols import ALL_EDGES, PROTOCOLS
from tasks.stores import matrices, warehouse
from tasks.stores.home import Home
from tasks.stores.matrices import Part, SplitMatrices
from tasks.stores.stage_results import StageResult, table_digest
from tasks.stores.warehouse import select

logger = logging.getLogger(__name__)

LIANG2018_SEED = 98765
SCHEME_OF = {"held_out_share": "hashed", "held_out_users": "liang2018"}  # the scheme that reads a setting


class SplitSettings(BaseModel):
    """How users and edges are held out. The last two settings filter users and items for strong_generalization alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheme: Literal["hashed", "liang2018"] = Field(
        "hashed",
        description="`hashed`: a user's part depends on its id and the seed alone. `liang2018`: the published "
        "preprocessing of Liang et al. 2018, draw for draw.",
    )
    held_out_share: float = Field(
        0.1, gt=0, lt=0.5, description="hashed: share of users in each of validation and test."
    )
    held_out_users: int | None = Field(None, ge=1, description="liang2018: users in each of validation and test.")
    min_user_edges: int = Field(0, ge=0, description="Leave out users with fewer edges, after the items.")
    min_item_edges: int = Field(0, ge=0, description="Leave out items with fewer edges.")

    def require_used(self, given: Mapping[str, Any]) -> None:
        """Refuse what a person set and the scheme would not read; a data set's file may hold it for the other scheme.

        Raises:
            InputError: naming the setting and both schemes.
        """
        for name, scheme in SCHEME_OF.items():
            if given.get(name) is not None and self.scheme != scheme:
                raise InputError(
                    f"setting split.{name} = {given[name]}: is read by split.scheme = {scheme} alone, and this run has "
                    f"split.scheme = {self.scheme}. Set split.scheme = {scheme}, or leave split.{name} out."
                )


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
) -> Splits:
    """Rewrite the tables of `splits` and store the matrices; tables of protocols not asked for are emptied.

    Where the edges, the settings and the seed are those of the last time, and the matrices are whole, both stay.

    Args:
        protocols: some of `PROTOCOLS`.
        seed: of the hashes; liang2018 has its own, the published one.
        ids_are_numbers: liang2018 sorts users by id, numerically or as text.
        given_files: `file_id`s of the train and of the test files, for `given`.

    Raises:
        InputError: liang2018 with too few users for `split.held_out_users`.
    """
    train_files, test_files = (",".join(map(str, ids)) for ids in given_files or ((), ()))
    parameters = {
        **settings.model_dump(),
        "seed": seed,
        **{one: one in protocols for one in PROTOCOLS},
        "train_files": train_files,
        "test_files": test_files,
    }
    with warehouse.stage(home, run_id, "split", parameters) as connection:
        reads = table_digest(connection, "curated.interactions")
        if "given" in protocols:  # its parts are told by the logs
            reads += f"; {table_digest(connection, 'raw.events')}"
        kept = StageResult(
            connection,
            "split",
            __file__,
            reads=reads,
            parameters={**parameters, "ids_are_numbers": ids_are_numbers},
            tables=[f"splits.{protocol}" for protocol in PROTOCOLS],
        )
        found = kept.standing()
        if not found or not all(matrices.is_whole(home, digest) for digest in found["digests"].values()):
            found = _rewrite(home, connection, settings, protocols, seed, ids_are_numbers, given_files)
            kept.keep(found)
        parameters |= found["drawn"]
    return Splits(found["digests"])


def _rewrite(
    home: Home,
    connection: duckdb.DuckDBPyConnection,
    settings: SplitSettings,
    protocols: Sequence[str],
    seed: int,
    ids_are_numbers: bool,
    given_files: tuple[Sequence[int], Sequence[int]] | None,
) -> dict[str, dict[str, Any]]:
    """The digests of the matrices, and what was drawn that SQL cannot draw again, for the contract."""
    drawn: dict[str, Any] = {}
    for protocol in PROTOCOLS:
        connection.execute(f"delete from splits.{protocol}")
    store = _Store(home, connection)
    if "strong_generalization" in protocols:
        store.keep(_strong_generalization(connection, settings, seed, ids_are_numbers))
        if settings.scheme == "liang2018":
            drawn = select(connection, "split/drawn").row(0, named=True)
    if "leave_one_out" in protocols:
        store.keep(_leave_one_out(connection, seed))
    if "given" in protocols:
        store.keep(_given(connection, given_files))
    if set(protocols) != {"given"}:
        store.keep(_all_edges(connection))
    return {"digests": store.digests, "drawn": drawn}


class _Store:
    """Puts matrices into the store and keeps their digests by protocol."""

    def __init__(self, home: Home, connection: duckdb.DuckDBPyConnection) -> None:
        self.digests: dict[str, str] = {}
        self._home = home
        sizes = select(connection, "split/sizes").row(0, named=True)
        self._numbering = {**sizes, "digest": select(connection, "split/numbering", **sizes).item()}

    def keep(self, made: SplitMatrices) -> None:
        """Store matrices, unless there is nothing to train on: a small log may lack a training user by chance."""
        if made.train.nnz == 0:
            logger.warning(
                "%s: left out, because no edge is left to train on; the log is too small for this protocol, or the "
                "filters split.min_user_edges and split.min_item_edges are too strict",
                made.protocol,
            )
        else:
            self.digests[made.protocol] = matrices.write(self._home, replace(made, numbering=self._numbering))


def _strong_generalization(
    connection: duckdb.DuckDBPyConnection, settings: SplitSettings, seed: int, ids_are_numbers: bool
) -> SplitMatrices:
    least = {"min_user_edges": str(settings.min_user_edges), "min_item_edges": str(settings.min_item_edges)}
    connection.execute(sql.statement("split/active_edges", **least))
    if settings.scheme == "hashed":
        values = {"seed": str(seed), "held_out_share": settings.held_out_share}
        connection.execute(sql.statement("split/hashed_users"), values)
        connection.execute(sql.statement("split/train_items"))
        connection.execute(sql.statement("split/hashed_targets"), {"seed": str(seed)})
    else:
        _liang2018(connection, settings, ids_are_numbers)
    connection.execute(sql.statement("split/roles"))
    connection.execute("insert into splits.strong_generalization select user_id, item_id, part, role from roles")

    items = connection.sql("select item_index from train_items order by item_column").pl()["item_index"].to_numpy()
    users, train = _matrix(connection, "roles where role = 'fit'", len(items))
    parts = {part: _held_out_part(connection, part, len(items)) for part in ("validation", "test")}
    sizes = ", ".join(f"{len(part.users):,} {name}" for name, part in parts.items())
    logger.info("strong_generalization, %s training users, %s, %s items", f"{len(users):,}", sizes, f"{len(items):,}")
    return SplitMatrices("strong_generalization", train, users, items, parts)


def _held_out_part(connection: duckdb.DuckDBPyConnection, part: str, items: int) -> Part:
    """Users with a target to find; their histories and targets, row by row."""
    users, targets = _matrix(connection, f"roles where part = '{part}' and role = 'target'", items)
    users, histories = _matrix(connection, f"roles where part = '{part}' and role = 'fold_in'", items, users)
    return Part(histories=histories, targets=targets, users=users)


def _liang2018(connection: duckdb.DuckDBPyConnection, settings: SplitSettings, ids_are_numbers: bool) -> None:
    """The published preprocessing: numpy's legacy generator, seeded once for the users, again for each part."""
    id_order = "try_cast(user_id as bigint), user_id" if ids_are_numbers else "user_id"
    users = select(connection, "split/users_by_id", {"id_order": id_order})["user_index"].to_numpy()
    held_out = settings.held_out_users
    if held_out is None:
        raise InputError(
            "split.scheme = liang2018 needs split.held_out_users, the users in each of validation and test."
        )
    if 2 * held_out >= len(users):
        raise InputError(
            f"split.held_out_users = {held_out}: validation and test together leave none of "
            f"{len(users)} users for training. Lower it, or use split.scheme = hashed."
        )
    order = users[np.random.RandomState(LIANG2018_SEED).permutation(len(users))]
    part = np.repeat(["train", "validation", "test"], [len(users) - 2 * held_out, held_out, held_out])
    _table(connection, "user_parts", pl.DataFrame({"user_index": order, "part": part}))
    connection.execute(sql.statement("split/train_items"))

    rows = select(connection, "split/held_out_edges", {"id_order": id_order})
    user_index, in_validation_part = rows["user_index"].to_numpy(), rows["in_validation"].to_numpy()
    chosen = np.zeros(len(rows), dtype=bool)
    for in_validation in (True, False):
        generator = np.random.RandomState(LIANG2018_SEED)
        of_part = np.flatnonzero(in_validation_part == in_validation)
        starts = np.flatnonzero(np.diff(user_index[of_part], prepend=-1))
        for edges in np.split(of_part, starts[1:]):
            if len(edges) >= 5:
                targets = generator.choice(len(edges), size=int(0.2 * len(edges)), replace=False)
                chosen[edges[targets.astype("int64")]] = True
    _table(connection, "targets", rows.filter(chosen).select("user_index", "item_index"))


def _leave_one_out(connection: duckdb.DuckDBPyConnection, seed: int) -> SplitMatrices:
    connection.execute(sql.statement("split/left_out"), {"seed": str(seed)})
    connection.execute(sql.statement("split/leave_one_out"))
    connection.execute("insert into splits.leave_one_out select user_id, item_id, role from leave_one_out_roles")
    return _same_users(connection, "leave_one_out", "leave_one_out_roles", "held_out")


def _given(connection: duckdb.DuckDBPyConnection, files: tuple[Sequence[int], Sequence[int]]) -> SplitMatrices:
    train, test = (", ".join(map(str, ids)) for ids in files)
    connection.execute(sql.statement("split/given", train_files=train, test_files=test))
    connection.execute("insert into splits.given select user_id, item_id, role from given_roles")
    return _same_users(connection, "given", "given_roles", "test")


def _same_users(connection: duckdb.DuckDBPyConnection, protocol: str, roles: str, held_out: str) -> SplitMatrices:
    """A protocol that tests on the training users themselves."""
    items, everyone = (
        select(connection, "split/indices", {"side": side, "edges": roles}).to_series().to_numpy()
        for side in ("item", "user")
    )
    width = int(items[-1]) + 1 if len(items) else 0
    _, train = _matrix(connection, f"{roles} where role = 'train'", width, everyone)
    users, targets = _matrix(connection, f"{roles} where role = '{held_out}'", width)
    rows = np.searchsorted(everyone, users).astype(np.int32)
    logger.info("%s, %s users, %s edges held out", protocol, f"{len(everyone):,}", f"{targets.nnz:,}")
    part = Part(histories=train[rows], targets=targets, users=users, rows=rows)
    return SplitMatrices(protocol, train, everyone, np.arange(width, dtype=np.int32), {"test": part})


def _all_edges(connection: duckdb.DuckDBPyConnection) -> SplitMatrices:
    connection.execute(sql.statement("split/all_edges"))
    items = select(connection, "split/sizes")["items"].item()
    users, train = _matrix(connection, "all_edges where true", items)
    return SplitMatrices(ALL_EDGES, train, users, np.arange(items, dtype=np.int32))


def all_edges(home: Home) -> str:
    """The digest of the matrix of every curated edge as they are now, which is put into the store."""
    with warehouse.connect(home) as connection:
        store = _Store(home, connection)
        store.keep(_all_edges(connection))
    if not store.digests:
        raise InputError(f"{home.dataset}: has no edge to fit a model on.")
    return store.digests[ALL_EDGES]


def _matrix(
    connection: duckdb.DuckDBPyConnection, edges: str, columns: int, users: np.ndarray | None = None
) -> tuple[np.ndarray, csr_matrix]:
    """(users, CSR) of the edges of a relation; row i belongs to the i-th of `users`, by default all it names."""
    user, item, count = (column.to_numpy() for column in select(connection, "split/edges", {"edges": edges}))
    users = np.unique(user) if users is None else users
    place = np.full(int(max(users.max(initial=-1), user.max(initial=-1))) + 1, -1, dtype=np.int32)
    place[users] = np.arange(len(users), dtype=np.int32)
    kept = place[user] >= 0
    entries = (count[kept].astype(np.float32), (place[user[kept]], item[kept]))
    matrix = csr_matrix(entries, shape=(len(users), columns))
    matrix.sort_indices()
    return users.astype(np.int32), matrix


def _table(connection: duckdb.DuckDBPyConnection, name: str, rows: pl.DataFrame) -> None:
    connection.register("incoming", rows)
    connection.execute(f"create or replace temp table {name} as select * from incoming")
    connection.unregister("incoming")


split_task = stage_task(split)
