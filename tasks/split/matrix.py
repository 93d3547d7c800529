"""Load edges of a relation as a matrix, and add to a split the ages of events and the explicit negatives.

All explicit negatives of training users are fitted on, except those held out to evaluate `like`: of each user of a part
the same share as of the user's likes, so that evaluated pairs have the log's proportion of likes. Under next_events
none are held out, and those from the cut on are dropped. A split that comes with the data set has none.
"""

import logging
from dataclasses import replace
from datetime import date

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass import sql
from oneclass.models.numerics.adjacency import put_edges
from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages
from oneclass.tasks.binarize.aggregate import LikeSelection, select_like_events
from oneclass.tasks.protocols import ALL_EDGES, NEXT_EVENTS_VALIDATION, find_protocol
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.stores.warehouse import query

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
