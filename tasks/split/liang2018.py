"""The published preprocessing of Liang et al. (2018), draw for draw: which users and which of their edges are held out."""

import duckdb
import numpy as np
import polars as pl

import sql
from tasks.errors import InputError
from tasks.split.matrix import table
from tasks.split.settings import SplitSettings
from tasks.stores.warehouse import select

LIANG2018_SEED = 98765


def draw_users(connection: duckdb.DuckDBPyConnection, settings: SplitSettings, ids_are_numbers: bool) -> None:
    """`user_parts`: the part of each active user, by numpy's legacy generator.

    Raises:
        InputError: there are too few users for `split.held_out_users`, or that is not set.
    """
    users = select(connection, "split/users_by_id", {"id_order": _id_order(ids_are_numbers)})["user_index"].to_numpy()
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
    table(connection, "drawn_users", pl.DataFrame({"user_index": order, "part": part}))
    connection.execute(sql.statement("split/drawn_users"))


def draw_targets(connection: duckdb.DuckDBPyConnection, ids_are_numbers: bool) -> None:
    """`targets`: a fifth of the edges of each user in `held_out_edges`, by the generator, seeded again for each part."""
    rows = select(connection, "split/candidates", {"id_order": _id_order(ids_are_numbers)})
    user_index, in_validation_part = rows["user_index"].to_numpy(), rows["in_validation"].to_numpy()
    chosen = np.zeros(len(rows), dtype=bool)
    for in_validation in (True, False):
        generator = np.random.RandomState(LIANG2018_SEED)
        of_part = np.flatnonzero(in_validation_part == in_validation)
        starts = np.flatnonzero(np.diff(user_index[of_part], prepend=-1))
        for first, count in zip(starts.tolist(), np.diff(starts, append=len(of_part)).tolist(), strict=True):
            if count >= 5:  # of which the published code takes `choice(count, size, replace=False)`: the head of this
                chosen[of_part[first + generator.permutation(count)[: int(0.2 * count)]]] = True
    table(connection, "targets", rows.filter(chosen).select("user_index", "item_index"))


def _id_order(ids_are_numbers: bool) -> str:
    return "try_cast(user_id as bigint), user_id" if ids_are_numbers else "user_id"
