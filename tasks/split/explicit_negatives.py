"""What users considered and did not like, beside the likes of a protocol: a part to fit on, a part to judge by.

All that training users did not like is trained on, but for what is held out to judge `like` by: of each user of a part as
large a share as of the user's likes, so that among what is judged likes are as frequent as in the log. Under next_events
nothing is held out, and what came from the cut on is left out. A split that comes with the data set has none.
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
    connection: duckdb.DuckDBPyConnection, made: SplitMatrices, seed: int, before: date | None = None
) -> SplitMatrices:
    """The matrices with `negatives`, of the training users and of the parts; as they are where the log tells of none.

    Args:
        before: leave out what came on this day or later, and hold out nothing.
    """
    if not connection.execute("select true from indexed.observed_negatives limit 1").fetchall():
        return made
    columns = {"item_index": made.items, "item_column": np.arange(len(made.items), dtype=np.int32)}
    insert_table(connection, "split_columns", pl.DataFrame(columns))
    parts = {} if before else made.parts
    insert_table(connection, "held_out_shares", pl.concat([_NO_USERS, *(_target_shares(made, name) for name in parts)]))
    values = {"seed": str(seed), "protocol": made.protocol, "before": before}
    connection.execute(sql.statement("split/observed_negatives"), values)

    def of(role: str, users: np.ndarray):
        return load_csr(connection, f"observed_negatives_roles where role = '{role}'", len(made.items), users)[1]

    train = of("train", made.users)
    judged = {name: replace(part, negatives=of(name, part.users)) for name, part in parts.items()}
    held_out = ", ".join(f"{part.negatives.nnz:,} held out of {name} users" for name, part in judged.items())
    logger.info("%s, %s observed negatives%s", made.protocol, f"{train.nnz:,}", f", {held_out}" if held_out else "")
    return replace(made, negatives=train, parts={**made.parts, **judged})


_NO_USERS = pl.DataFrame(schema={"user_index": pl.Int32, "part": pl.String, "share": pl.Float64, "trained": pl.Boolean})


def _target_shares(made: SplitMatrices, name: str) -> pl.DataFrame:
    """Of each user of a part, the share of likes that is to be found, and whether the others are trained on."""
    part = made.parts[name]
    targets = np.diff(part.targets.indptr)
    histories = np.diff(part.histories.indptr) if part.rows is None else np.diff(made.train.indptr)[part.rows]
    share = targets / np.maximum(targets + histories, 1)
    columns = {"user_index": part.users, "part": name, "share": share, "trained": part.rows is not None}
    return pl.DataFrame(columns, schema=_NO_USERS.schema)
