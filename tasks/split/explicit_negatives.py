"""Split the explicit negatives of a protocol into those to fit on and those to evaluate `like` by.

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

from oneclass import sql
from oneclass.tasks.split.matrix import insert_table, load_csr
from oneclass.tasks.stores.matrices import SplitMatrices

logger = logging.getLogger(__name__)


def add_explicit_negatives(
    connection: duckdb.DuckDBPyConnection, split: SplitMatrices, seed: int, before: date | None = None
) -> SplitMatrices:
    """Add the explicit negatives of the training users and of the parts to a split; unchanged if the log has none.

    Args:
        before: drop those of this day or later, and hold out none.
    """
    if not connection.execute("select true from indexed.observed_negatives limit 1").fetchall():
        return split
    columns = {"item_index": split.items, "item_column": np.arange(len(split.items), dtype=np.int32)}
    insert_table(connection, "split_columns", pl.DataFrame(columns))
    parts = {} if before else split.parts
    insert_table(
        connection, "held_out_shares", pl.concat([_NO_USERS, *(_target_shares(split, name) for name in parts)])
    )
    values = {"seed": str(seed), "protocol": split.protocol, "before": before}
    connection.execute(sql.statement("split/observed_negatives"), values)

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
