"""Load edges of a relation as a matrix, add to a split what else is known of them, and store it in the background.

All edges are sorted once, and the entries of a split ranked among themselves from their ranks among all edges of the
user; but those of next_events are sorted by what came before the cut, where values add up.

All explicit negatives of training users are fitted on, except those held out to evaluate `like`: of each user of a part
the same share as of the user's likes, so that evaluated pairs have the log's proportion of likes. Under next_events
none are held out, and those from the cut on are dropped. A split that comes with the data set has none.
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from datetime import date

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix, vstack

from oneclass import sql
from oneclass.models.attributes.encoder import KINDS, FeatureEncoder
from oneclass.models.numerics.adjacency import as_read_only, put_edges
from oneclass.models.numerics.sequential_histories import EventAges, select_ranks, with_event_ages, with_recency_ranks
from oneclass.tasks.attributes import load_attributes, load_version
from oneclass.tasks.binarize.aggregate import LikeSelection, select_like_events
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import ALL_EDGES, NEXT_EVENTS_VALIDATION, find_protocol, is_fold
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.stores.warehouse import query, select

ROWS_PER_BATCH = 1 << 20  # edges read from DuckDB at a time


def load_csr(
    connection: duckdb.DuckDBPyConnection,
    edges: str,
    columns: int,
    users: np.ndarray | None = None,
    *,
    value: str = "confidence",
) -> tuple[np.ndarray, csr_matrix]:
    """Load the edges of a relation as (users, CSR); row i belongs to the i-th of `users`, by default all users in it.

    Edges are placed batch by batch, so that memory holds only the matrix.

    Args:
        value: the column of the entries, an INTEGER below 2^24 or a FLOAT, without NULLs.
    """
    # one row per user, by index: how many edges it has
    degrees_by_user = f"select user_index, count(*) from {edges} group by user_index order by user_index"
    present, degrees = (column.to_numpy() for column in query(connection, degrees_by_user))
    users = present if users is None else users
    row_of_user = np.full(int(max(users.max(initial=-1), present.max(initial=-1))) + 1, -1, dtype=np.int32)
    row_of_user[users] = np.arange(len(users), dtype=np.int32)
    starts = np.zeros(len(users) + 1, dtype=np.int64)
    selected = row_of_user[present] >= 0
    starts[row_of_user[present[selected]] + 1] = degrees[selected]
    starts = np.cumsum(starts)
    items, counts = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.float32)
    next_free = starts[:-1].copy()
    # one row per edge: its user, the column of its item, and its value
    triples = f"select user_index, item_column, {value} from {edges}"
    connection.complete()
    batches = connection.sql(triples).to_arrow_reader(ROWS_PER_BATCH)
    for batch in batches:
        of_users, of_items, of_counts = (column.to_numpy() for column in batch.columns)
        put_edges(next_free, row_of_user, of_users, of_items, of_counts, items, counts)
    matrix = csr_matrix((counts, items, starts), shape=(len(users), columns))
    matrix.sort_indices()
    return users.astype(np.int32), matrix


def store_roles(
    connection: duckdb.DuckDBPyConnection, protocol: str, roles: str, columns: str = "user_index, item_index, role"
) -> None:
    """Fill the protocol's empty table from the relation of its roles."""
    # indexed.{protocol}: one row per edge of `roles`, by index
    connection.execute(f"insert into indexed.{protocol} by name select {columns} from {roles}")


def insert_table(connection: duckdb.DuckDBPyConnection, name: str, rows: pl.DataFrame) -> None:
    connection.register("incoming", rows)
    connection.execute(f"create or replace temp table {name} as select * from incoming")
    connection.unregister("incoming")


TRAINING_RELATION = {  # the training edges of each protocol while it is split
    "strong_generalization": "roles where role = 'fit'",
    "leave_one_out": "leave_one_out_roles where role = 'train'",
    "cold_items": "cold_items_roles where role = 'train'",
    "next_events": "next_events_roles where role in ('train', 'again')",
    NEXT_EVENTS_VALIDATION: "next_events_roles where role in ('train', 'again')",
    "given": "given_roles where role = 'train'",
    ALL_EDGES: "all_edges where true",
}


def add_event_ages(
    connection: duckdb.DuckDBPyConnection, split: SplitMatrices, selection: LikeSelection, before: date | None
) -> SplitMatrices:
    """Add the ages of the events of training edges, and of histories of users not seen in training.

    Unchanged if no event has a time. An event without one is as old as the oldest.

    Args:
        selection: by which `binarize` selected likes.
        before: the first day that is not trained on; ages are in days before the last one that is.
    """
    events, values = select_like_events(connection, selection, before)
    ids = "all_{}s" if before and selection.likes.adds_values else "indexed.{}s"
    sides = {"users": ids.format("user"), "items": ids.format("item")}

    def load_ages(relation: str, users: np.ndarray) -> EventAges:
        insert_table(connection, "aged_users", pl.DataFrame({"user_index": users}))
        connection.execute(sql.statement("split/event_ages", edges=relation, events=events, **sides), values)
        # one row per event, by edge: whether it is the first of its edge, and its age
        columns = "is_first, age from event_ages order by user_index, item_column, age, is_first desc"
        is_first, ages = (column.to_numpy() for column in query(connection, f"select {columns}"))
        return EventAges(np.append(np.flatnonzero(is_first), len(ages)), ages)

    connection.execute(sql.statement("split/last_day", events=events), {"before": before, **values})
    if query(connection, "select day is null from last_day").item():
        return split
    parts = dict(split.parts)
    for name, part in split.parts.items():
        if part.rows is None:
            ages = load_ages(f"roles where part = '{name}' and role = 'fold_in'", part.users)
            parts[name] = replace(part, stored_histories=with_event_ages(part.histories, ages))
    train = TRAINING_RELATION[find_protocol(split.protocol)]
    return replace(split, event_ages=load_ages(train, split.users), parts=parts)


logger = logging.getLogger(__name__)


def add_explicit_negatives(
    connection: duckdb.DuckDBPyConnection, split: SplitMatrices, seed: int, before: str | None = None
) -> SplitMatrices:
    """Add the explicit negatives of the training users and of the parts to a split; unchanged if the log has none.

    Args:
        before: the relation of those before the cut, of which none are held out; by default all that are never liked.
    """
    negatives = before or "(from indexed.observed_negatives where liked_at is null)"
    if not connection.execute(f"select true from {negatives} limit 1").fetchall():
        return split
    columns = {"item_index": split.items, "item_column": np.arange(len(split.items), dtype=np.int32)}
    insert_table(connection, "split_columns", pl.DataFrame(columns))
    parts = {} if before else split.parts
    insert_table(
        connection, "held_out_shares", pl.concat([_NO_USERS, *(_target_shares(split, name) for name in parts)])
    )
    values = {"seed": str(seed), "protocol": split.protocol}
    connection.execute(sql.statement("split/observed_negatives", negatives=negatives), values)

    def load_role(role: str, users: np.ndarray):
        return load_csr(connection, f"observed_negatives_roles where role = '{role}'", len(split.items), users)[1]

    train = load_role("train", split.users)
    evaluated = {name: replace(part, explicit_negatives=load_role(name, part.users)) for name, part in parts.items()}
    held_out = ", ".join(
        f"{part.explicit_negatives.nnz:,} held out of {name} users"
        for name, part in evaluated.items()
        if part.explicit_negatives is not None
    )
    logger.info("%s, %s observed negatives%s", split.protocol, f"{train.nnz:,}", f", {held_out}" if held_out else "")
    return replace(split, explicit_negatives=train, parts={**split.parts, **evaluated})


_NO_USERS = pl.DataFrame(schema={"user_index": pl.Int32, "part": pl.String, "share": pl.Float64, "trained": pl.Boolean})


def _target_shares(split: SplitMatrices, name: str) -> pl.DataFrame:
    """Return the share of targets among the likes of each user of a part, and whether the others are trained on."""
    part = split.parts[name]
    targets = np.diff(part.targets.indptr)
    histories = np.diff(part.histories.indptr) if part.rows is None else np.diff(split.train.indptr)[part.rows]
    share = targets / np.maximum(targets + histories, 1)
    columns = {"user_index": part.users, "part": name, "share": share, "trained": part.rows is not None}
    return pl.DataFrame(columns, schema=_NO_USERS.schema)


logger = logging.getLogger(__name__)


def _encode_items(connection: duckdb.DuckDBPyConnection) -> csr_matrix | None:
    version, frame = load_version(connection, "item"), load_attributes(connection, "item")
    of_columns = zip(version.columns, version.types, strict=True) if version else ()
    kinds = {name: kind for name, kind in of_columns if kind in KINDS}
    if not kinds or frame is None:
        return None
    ids = query(connection, "select item_id from curated.items order by item_index")["item_id"]
    return encode_items(frame, kinds, ids)


def encode_items(frame: pl.DataFrame, kinds: Mapping[str, str], ids: pl.Series) -> csr_matrix:
    """Encode the attributes of items by their ids, float32 (ids, features); zero for an id without a row."""
    features = FeatureEncoder.fit(frame, kinds).encode(frame)
    row_of_id = {name: row for row, name in enumerate(frame["item_id"])}
    rows = np.array([row_of_id.get(name, len(row_of_id)) for name in ids], dtype=np.int64)
    missing = csr_matrix(np.zeros((1, features.shape[1]), dtype=np.float32))
    return csr_matrix(vstack([features, missing], format="csr")[rows])


def add_new_items(connection: duckdb.DuckDBPyConnection, split: SplitMatrices) -> SplitMatrices:
    """Append the items of `indexed.new_items`, columns without edges, to the split of every edge."""
    # one row per item that nobody likes
    new = query(connection, "from indexed.new_items order by item_index")["item_index"].to_numpy().astype(np.int32)
    items, negatives = np.concatenate([split.items, new]), split.explicit_negatives
    train = _widen(split.train, len(items))
    negatives = None if negatives is None else _widen(negatives, len(items))
    return replace(split, items=items, train=train, explicit_negatives=negatives)


def _select_features(features: csr_matrix, items: np.ndarray) -> csr_matrix:
    """Return the rows of some items; zero for an index above all: what had likes before a cut, and no attributes."""
    rows = max(features.shape[0], int(items.max(initial=-1)) + 1)
    starts = np.pad(features.indptr, (0, rows - features.shape[0]), mode="edge")
    return csr_matrix(csr_matrix((features.data, features.indices, starts), shape=(rows, features.shape[1]))[items])


def _widen(matrix: csr_matrix, columns: int) -> csr_matrix:
    return csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], columns))


class MatrixWriter:
    """Store matrices one after the other while the next are computed.

    Args:
        write: starts to write a split, and returns its digest.
        order: whether to keep the order of likes with them.
        summed: whether values add up, so that since when a pair is a like depends on the cut of next_events.
        timed: by which `binarize` selected likes, to keep the ages of their events; None to keep none.
        features: of all items by index, by default those of the warehouse, zero for an item without attributes.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        write: Callable[[SplitMatrices], Future[str]],
        *,
        order: bool,
        summed: bool,
        timed: LikeSelection | None,
        features: csr_matrix | None = None,
    ) -> None:
        self._connection, self._timed, self._write = connection, timed, write
        self._order = EdgeOrder(connection, summed=summed) if order else None
        self._written: dict[str, Future[str]] = {}
        sizes = select(connection, "split/sizes").row(0, named=True)
        self._numbering = {**sizes, "digest": select(connection, "split/numbering", **sizes).item()}
        self._features = _encode_items(connection) if features is None else features

    def store(self, split: SplitMatrices, before: date | None = None) -> None:
        """Store a split, with recency ranks and event ages if they are kept; its relations must still exist.

        A split without training edges is skipped with a warning: a small log may lack a training user by chance.

        Args:
            before: the first day that is not trained on, if the split is by time.
        """
        if split.train.nnz == 0:
            logger.warning(
                "%s: left out, because no edge is left to train on; the log is too small for this protocol, or the "
                "filters split.min_user_edges and split.min_item_edges are too strict",
                split.protocol,
            )
        else:
            split = self._order.add_to(split) if self._order else split
            split = add_event_ages(self._connection, split, self._timed, before) if self._timed else split
            features = None if self._features is None else _select_features(self._features, split.items)
            split = replace(split, item_features=features)
            if is_fold(split.protocol):
                split = replace(split, parts={**split.parts, "validation": split.parts["test"]})
            self._written[split.protocol] = self._write(replace(split, numbering=self._numbering))

    def require_item_features(self) -> None:
        """Refuse cold_items without attributes.

        Raises:
            InputError: the data set has no attributes of items that count as features.
        """
        if self._features is None:
            raise InputError(
                "protocol cold_items: needs attributes of items, and the warehouse has none. Name the table and the "
                "columns that count under [items] in the data set's TOML, or leave cold_items out of --protocols."
            )

    def digests(self) -> dict[str, str]:
        """Return the digests of the stored splits by protocol, waiting for the writes.

        Raises:
            OSError: a split cannot be written.
        """
        return {protocol: writing.result() for protocol, writing in self._written.items()}


class EdgeOrder:
    """The recency rank of every curated edge among the edges of its user."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, summed: bool) -> None:
        # one row per edge, its item's column the item's index
        edges = """(
            select *, item_index as item_column, (first_file_id << 40) | first_line as position
            from indexed.interactions
        )"""
        items = query(connection, "select count(*) from indexed.items").item()
        self._connection, self._summed = connection, summed
        self._users, self._ranks = self._sort_edges(edges, items)

    def add_to(self, split: SplitMatrices) -> SplitMatrices:
        """Add recency ranks of the training edges, and of the histories of users not seen in training.

        The relations of the split must still exist.
        """
        parts = dict(split.parts)
        for name, part in split.parts.items():
            if part.rows is None:
                ranks = self._rank_entries(part.histories, part.users, split.items)
                parts[name] = replace(part, stored_histories=with_recency_ranks(part.histories, ranks))
        if self._summed and split.protocol in ("next_events", NEXT_EVENTS_VALIDATION):
            edges = f"(select *, null::bigint as position from {TRAINING_RELATION[split.protocol]})"
            ranks = self._sort_edges(edges, split.train.shape[1])[1].data
        else:
            ranks = self._rank_entries(split.train, split.users, split.items)
        return replace(split, recency_ranks=ranks, parts=parts)

    def _rank_entries(self, histories: csr_matrix, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """int32, in the order of the entries."""
        rows = np.searchsorted(self._users, users)
        order = as_read_only(self._ranks.indptr, np.int64), self._ranks.indices, self._ranks.data
        entries = as_read_only(histories.indptr, np.int64), as_read_only(histories.indices, np.int32)
        return select_ranks(*order, rows, *entries, as_read_only(items, np.int32), self._ranks.shape[1])

    def _sort_edges(self, edges: str, columns: int) -> tuple[np.ndarray, csr_matrix]:
        """Return the users of a relation of edges, and a matrix of the recency ranks of each user's edges."""
        self._connection.execute(sql.statement("split/places", edges=edges))
        users, placed = load_csr(self._connection, "placed_edges", columns, value="place")
        self._connection.execute("drop table placed_edges")
        return users, csr_matrix((placed.data.astype(np.int32), placed.indices, placed.indptr), shape=placed.shape)
